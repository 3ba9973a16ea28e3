//! Colours and text of pictures.

use super::timeline::{Action, Content};
use crate::graph::Phase;
use crate::svg::width;

/// Beside those of all pictures.
pub(super) const STYLE: &str = "\
.in{font-size:11px;fill:#1b1f23;pointer-events:none}.grid{stroke:#e9ecef;stroke-width:1}\
.block{stroke:#fff;stroke-width:.8}.again{stroke:#1b4332;stroke-width:1.2}\
.live{fill:none;stroke:#1d3557;stroke-width:1.4;pointer-events:none}\
.arena{stroke:#343a40;stroke-width:1.2;stroke-dasharray:5 3}.budget{stroke:#c1121f;stroke-width:1.8}";

/// Lines across blocks that are recomputed.
pub(super) const PATTERNS: &str = "<defs><pattern id=\"again\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" \
patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"7\" fill=\"#1b4332\" fill-opacity=\".38\"/></pattern></defs>";

pub(super) fn block_color(content: Content) -> &'static str {
    match content {
        Content::Input => "#8ecae6",
        Content::Activation => "#95d5a6",
        Content::Gradient => "#f6bd7b",
        Content::Workspace => "#ced4da",
        Content::Fetched => "#cbb2e8",
    }
}

pub(super) fn action_color(action: Action) -> &'static str {
    match action {
        Action::Upload => "#8ecae6",
        Action::Run(Phase::Forward) => "#52b788",
        Action::Run(Phase::Backward) => "#ee9b3f",
        Action::Run(Phase::Update) => "#6c757d",
        Action::Recompute => "#1b4332",
        Action::Offload | Action::Fetch => "#9d6fd0",
    }
}

pub(super) fn action_name(action: Action) -> &'static str {
    match action {
        Action::Upload => "upload",
        Action::Run(Phase::Forward) => "forward",
        Action::Run(Phase::Backward) => "backward",
        Action::Run(Phase::Update) => "update",
        Action::Recompute => "recompute",
        Action::Offload => "offload",
        Action::Fetch => "fetch",
    }
}

/// The longest name of `features.block1.conv2:conv2d` that takes at most `most_width` pixels: the whole, that of the layer, and the
/// last parts of that. Of a parameter's `features.block1.conv2.weight`, parts before the layer's last go first. Half a name, or a
/// name without its layer, says nothing.
pub(super) fn name_in<'a>(name: &'a str, layer: &'a str, most_width: f64, font_size: f64) -> Option<&'a str> {
    let layer = name.split_once(':').map_or(layer, |(layer, _)| layer);
    let after_dots = |name: &'a str| name.match_indices('.').map(move |(dot, _)| &name[dot + 1..]);
    let last = layer.rsplit('.').next().unwrap_or(layer);
    let from_layer = name.find(layer).filter(|_| !layer.is_empty() && !name.contains(':'));
    let least = from_layer.map_or(name.len(), |at| name.len() - (at + layer.len() - last.len()));
    let parts = after_dots(name).filter(|part| part.len() >= least);
    let names = std::iter::once(name).chain(parts).chain([layer]).chain(after_dots(layer));
    names.into_iter().find(|name| !name.is_empty() && width(name, font_size) <= most_width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_cut_in_the_middle() {
        let name = "features.block1.conv2:conv2d";
        for (most_width, shown) in [
            (190.0, Some(name)),
            (180.0, Some("features.block1.conv2")),
            (130.0, Some("block1.conv2")),
            (70.0, Some("conv2")),
            (30.0, None),
        ] {
            assert_eq!(name_in(name, "another", most_width, 11.0), shown, "{most_width}");
        }
        let state = "grad.block1.conv2.weight.exp_avg";
        for (most_width, shown) in [
            (220.0, Some(state)),
            (190.0, Some("block1.conv2.weight.exp_avg")),
            (140.0, Some("conv2.weight.exp_avg")),
            (130.0, Some("block1.conv2")),
            (70.0, Some("conv2")),
            (30.0, None),
        ] {
            assert_eq!(name_in(state, "block1.conv2", most_width, 11.0), shown, "{most_width}");
        }
        assert_eq!(name_in("workspace", "", 40.0, 11.0), None);
    }
}
