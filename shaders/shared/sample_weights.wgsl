// The weights of samples, for losses that have them. The importing file's `params` say how many neighbouring numbers (elements,
// positions or samples) belong to each weight: `per_weight`.
//
// bindings   sample_weights [W], at binding SAMPLE_WEIGHTS
@group(0) @binding(SAMPLE_WEIGHTS) var<storage, read> sample_weights: array<Storage>;

fn sample_weight(number: u32) -> Accum {
    return Accum(sample_weights[number / params.per_weight]);
}

// Those of the four elements of a vector. What lies behind the last of `elements` has its weight.
fn sample_weights4(vector: u32, elements: u32) -> Accum4 {
    let numbers = min(4u * vector + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(elements - 1u));
    return Accum4(sample_weight(numbers.x), sample_weight(numbers.y), sample_weight(numbers.z), sample_weight(numbers.w));
}
