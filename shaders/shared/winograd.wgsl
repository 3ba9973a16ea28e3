// Polynomials at six points, and back: the transforms of conv2d_winograd.wgsl along one axis.
//
// The points are 0, a, -a, b, -b and infinity with a = sqrt(1/2), b = sqrt(2): of those tried, errors are the least, about
// twice those of a plain sum in f32, against four times with the usual 1 and 2.

// Indexed by constants only, so these are registers.
alias Three = array<Accum4, 3>;
alias Four = array<Accum4, 4>;
alias Six = array<Accum4, 6>;

const A = 0.70710678118654752;
const B = 1.41421356237309505;

// Pixels that are multiplied with a kernel, at the points.
fn pixels_at_points(d: Six) -> Six {
    let even_a = d[4] - 2.0 * d[2];
    let odd_a = A * d[3] - B * d[1];
    let even_b = d[4] - 0.5 * d[2];
    let odd_b = B * d[3] - A * d[1];
    return Six(
        d[0] - 2.5 * d[2] + d[4],
        even_a + odd_a,
        even_a - odd_a,
        even_b + odd_b,
        even_b - odd_b,
        d[1] - 2.5 * d[3] + d[5],
    );
}

// A kernel of three, at the points.
fn kernel_at_points(g: Three) -> Six {
    let even_a = (-2.0 / 3.0) * g[0] - (1.0 / 3.0) * g[2];
    let odd_a = (-2.0 / 3.0 * A) * g[1];
    let even_b = (1.0 / 6.0) * g[0] + (1.0 / 3.0) * g[2];
    let odd_b = (B / 6.0) * g[1];
    return Six(g[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, g[2]);
}

// A kernel of four, at the points.
fn long_kernel_at_points(g: Four) -> Six {
    let even_a = (-2.0 / 3.0) * g[0] - (1.0 / 3.0) * g[2];
    let odd_a = (-2.0 / 3.0 * A) * g[1] - (A / 3.0) * g[3];
    let even_b = (1.0 / 6.0) * g[0] + (1.0 / 3.0) * g[2];
    let odd_b = (B / 6.0) * g[1] + (B / 3.0) * g[3];
    return Six(g[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, g[3]);
}

// Four results, of their values at the points.
fn four_of_points(s: Six) -> Four {
    let even_a = s[1] + s[2];
    let odd_a = s[1] - s[2];
    let even_b = s[3] + s[4];
    let odd_b = s[3] - s[4];
    return Four(
        s[0] + even_a + even_b,
        A * odd_a + B * odd_b,
        0.5 * even_a + 2.0 * even_b,
        (0.5 * A) * odd_a + (2.0 * B) * odd_b + s[5],
    );
}

// Three results, of their values at the points.
fn three_of_points(s: Six) -> Three {
    let even_a = s[1] + s[2];
    let odd_a = s[1] - s[2];
    let even_b = s[3] + s[4];
    let odd_b = s[3] - s[4];
    return Three(s[0] + even_a + even_b, A * odd_a + B * odd_b, 0.5 * even_a + 2.0 * even_b + s[5]);
}
