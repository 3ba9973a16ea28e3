// What every `fused` function is written with, and how a kernel calls it. `fused` itself is made for each variant of a kernel with
// elementwise functions to fuse (src/shader/fused.rs): it applies them one after another, each to what the one before makes.
// This file is part of such a variant without being imported. Kernels that have an activation built in as well call `fused`
// through epilogue.wgsl; others write, where FUSED is defined,
//   output[i] = Storage4(fused(x, i));
// in place of x, or fused(i) where it begins with what it loads. `fused` loads other tensors at the vector i (with
// BY_ELEMENT, at the element i, of which it then returns the result four times over). The kernel's file defines
//   output: array<Storage4>, or with BY_ELEMENT array<Storage>, which may be the memory of an operand
//   params.setting_0, params.setting_1, … below SETTINGS: the numbers of all functions
//   fn runtime_number() -> u32: any number below 2^31 that is known at run time only
//
// A function that can be fused is written in the file of its op, as <file>_<entry>, say `relu_forward`.

// A value as it would be had it gone through memory: no compiler may merge what is before with what follows, say a product
// with a sum, so that fused functions make the same bits as one after another.
fn rounded(x: Accum4) -> Accum4 {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(runtime_number() >> 31u));
}

// 1 where the element has its bit set in the mask's word, else 0.
fn bits_of(word: u32, i: u32) -> Accum4 {
    let bits = vec4<u32>(word >> (4u * (i & 7u))) & vec4<u32>(1u, 2u, 4u, 8u);
    return select(Accum4(0.0), Accum4(1.0), bits > vec4<u32>(0u));
}

fn bit_of(word: u32, i: u32) -> Accum4 {
    return Accum4(Accum((word >> (i & 31u)) & 1u));
}
