# Shared by the scripts in this folder, which source it.

CARGO_DENY_VERSION=0.20.2
# Checked, not run: there the library must compile. The second has vectors of its own, NEON.
OTHER_TARGETS=(wasm32-unknown-unknown aarch64-unknown-linux-gnu)
export DEBIAN_FRONTEND=noninteractive
# Mesa's layer that sorts devices complains on standard error where no desktop session runs.
export NODEVICE_SELECT=1

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# rustup's folder is not on the path of every non-login shell.
use_cargo() {
  if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
    PATH="$HOME/.cargo/bin:$PATH"
  fi
}

# Whether the compiler has the standard library for a target.
has_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ]; }

# Whether the dynamic linker finds a library.
has_library() {
  local cache
  cache=$(PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null || true)
  [[ $cache == *"$1 "* ]]
}

# The files that announce installed Vulkan drivers, one a line; nothing if there is none.
vulkan_drivers() {
  local folder file
  for folder in /usr/share/vulkan/icd.d /etc/vulkan/icd.d /usr/local/share/vulkan/icd.d /usr/local/etc/vulkan/icd.d \
    "${XDG_DATA_HOME:-${HOME:-/root}/.local/share}/vulkan/icd.d"; do
    for file in "$folder"/*.json; do
      if [ -e "$file" ]; then printf '%s\n' "$file"; fi
    done
  done
  # A driver chosen by hand counts too.
  if [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ]; then
    tr ':' '\n' <<<"${VK_DRIVER_FILES:-$VK_ICD_FILENAMES}"
  fi
}

# Whether the system has a GPU, with a driver of the kernel's.
has_gpu() { compgen -G '/dev/dri/renderD*' >/dev/null || [ -e /dev/nvidia0 ]; }

# SwiftShader's file, as Debian's chromium-common carries it; nothing if there is none.
swiftshader_driver() {
  local file
  for file in /usr/lib/chromium/vk_swiftshader_icd.json /usr/lib/chromium-browser/vk_swiftshader_icd.json \
    /opt/google/chrome/vk_swiftshader_icd.json; do
    if [ -e "$file" ]; then
      printf '%s\n' "$file"
      return
    fi
  done
}

# Installs Debian packages, as root or through sudo.
install_packages() {
  local as_root=()
  if ! command -v apt-get >/dev/null; then
    fail "missing: the equivalents of the Debian packages $*; this system has no apt-get, so install them by hand and run this again"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "missing: the packages $*; run 'apt-get install $*' as root (there is no sudo here), then run this again"
    as_root=(sudo --preserve-env=DEBIAN_FRONTEND)
  fi
  say "installing $*"
  # An index that cannot be refreshed may still be good enough.
  "${as_root[@]}" apt-get update -qq >&2 || say "the package index could not be refreshed; going on with the one that is there"
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@" >&2 ||
    fail "apt-get could not install $*; see its message above"
}
