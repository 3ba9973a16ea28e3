//! Sizes in several dimensions, as settings have them.

use serde::{Deserialize, Serialize};

/// A size in two dimensions, height first: `3` means `(3, 3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrTwo", into = "OneOrTwo")]
pub struct Pair(pub usize, pub usize);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a whole number or a pair of them, like 3 or [3, 5]")]
enum OneOrTwo {
    One(usize),
    Two([usize; 2]),
}

impl From<OneOrTwo> for Pair {
    fn from(value: OneOrTwo) -> Self {
        match value {
            OneOrTwo::One(n) => Pair(n, n),
            OneOrTwo::Two([h, w]) => Pair(h, w),
        }
    }
}

impl From<Pair> for OneOrTwo {
    fn from(Pair(h, w): Pair) -> Self {
        if h == w { OneOrTwo::One(h) } else { OneOrTwo::Two([h, w]) }
    }
}

impl From<usize> for Pair {
    fn from(n: usize) -> Self {
        Pair(n, n)
    }
}

impl From<(usize, usize)> for Pair {
    fn from((h, w): (usize, usize)) -> Self {
        Pair(h, w)
    }
}

impl From<Pair> for (usize, usize) {
    fn from(Pair(h, w): Pair) -> Self {
        (h, w)
    }
}

impl From<Pair> for [usize; 2] {
    fn from(Pair(h, w): Pair) -> Self {
        [h, w]
    }
}

/// A size in three dimensions, depth first and then height: `3` means `(3, 3, 3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrThree", into = "OneOrThree")]
pub struct Triple(pub usize, pub usize, pub usize);

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a whole number or three of them, like 3 or [1, 3, 5]")]
enum OneOrThree {
    One(usize),
    Three([usize; 3]),
}

impl From<OneOrThree> for Triple {
    fn from(value: OneOrThree) -> Self {
        match value {
            OneOrThree::One(n) => Triple(n, n, n),
            OneOrThree::Three([d, h, w]) => Triple(d, h, w),
        }
    }
}

impl From<Triple> for OneOrThree {
    fn from(Triple(d, h, w): Triple) -> Self {
        if d == h && h == w { OneOrThree::One(d) } else { OneOrThree::Three([d, h, w]) }
    }
}

impl From<usize> for Triple {
    fn from(n: usize) -> Self {
        Triple(n, n, n)
    }
}

impl From<(usize, usize, usize)> for Triple {
    fn from((d, h, w): (usize, usize, usize)) -> Self {
        Triple(d, h, w)
    }
}

/// A size along each of so many axes.
pub(super) trait Extents<const N: usize>: Copy {
    /// The outermost axis first.
    fn extents(self) -> [usize; N];
}

impl Extents<1> for usize {
    fn extents(self) -> [usize; 1] {
        [self]
    }
}

impl Extents<2> for Pair {
    fn extents(self) -> [usize; 2] {
        self.into()
    }
}

impl Extents<3> for Triple {
    fn extents(self) -> [usize; 3] {
        let Triple(depth, height, width) = self;
        [depth, height, width]
    }
}

/// Numbers before and after each of so many axes.
pub(super) trait Sides<const N: usize>: Copy {
    /// The outermost axis first.
    fn sides(self) -> [(usize, usize); N];
}

impl Sides<1> for (usize, usize) {
    fn sides(self) -> [(usize, usize); 1] {
        [self]
    }
}

impl Sides<2> for ((usize, usize), (usize, usize)) {
    fn sides(self) -> [(usize, usize); 2] {
        [self.0, self.1]
    }
}

impl Sides<3> for ((usize, usize), (usize, usize), (usize, usize)) {
    fn sides(self) -> [(usize, usize); 3] {
        [self.0, self.1, self.2]
    }
}

/// Before and after one axis, two and three of them.
pub(super) type Sides1 = (usize, usize);
pub(super) type Sides2 = ((usize, usize), (usize, usize));
pub(super) type Sides3 = ((usize, usize), (usize, usize), (usize, usize));
