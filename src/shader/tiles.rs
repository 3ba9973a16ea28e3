//! Tiles of matrix products: which a family has, and which of them a device takes for a product.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Family;

/// Rows and columns of a product that one workgroup computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "[u32; 2]", into = "[u32; 2]")]
pub struct Tile {
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
}

impl From<[u32; 2]> for Tile {
    fn from([rows, columns]: [u32; 2]) -> Self {
        Tile { rows, columns }
    }
}

impl From<Tile> for [u32; 2] {
    fn from(Tile { rows, columns }: Tile) -> Self {
        [rows, columns]
    }
}

impl Tile {
    /// The tile that every family without subgroups has, and that the choice of tiles assumes.
    pub const USUAL: Tile = Tile { rows: 64, columns: 64 };

    const fn new(rows: u32, columns: u32) -> Self {
        Tile { rows, columns }
    }
}

impl Family {
    /// The tiles that this family computes, the smallest first.
    pub fn tiles(self) -> Vec<Tile> {
        match self {
            Family::Subgroup { size } => match size {
                4 | 8 => vec![Tile::new(4 * size, 4 * size), Tile::new(8 * size, 4 * size)],
                _ => vec![Tile::new(4 * size, 4 * size)],
            },
            Family::Cooperative { .. } => vec![Tile::USUAL],
            Family::Workgroup => {
                [[32, 32], [64, 64], [128, 64], [64, 128], [128, 128]].into_iter().map(Tile::from).collect()
            }
        }
    }
}

/// How the operands of a product are read, which says what a larger tile saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProductKind {
    /// Matrices as they lie in memory.
    Matrices,
    /// One is gathered from an image: a convolution, or its gradient of input.
    Image,
    /// The sum goes over an image: a convolution's gradient of weight.
    GradWeight,
    /// A batch in panels: Winograd convolutions.
    #[serde(alias = "points")]
    Winograd,
}

/// How many tiles a product has, and of which shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProductSize {
    /// A device has hardly enough of [`Tile::USUAL`] to work on.
    Few,
    /// It has, but not of larger ones; or those would be padded on both sides.
    Medium,
    /// Tiles of twice as many columns are not padded more.
    Low,
    /// Tiles of twice as many rows are not padded more.
    Narrow,
    /// Neither are.
    Large,
}

/// With fewer tiles than this a device may have nothing to do.
const FEW_TILES: usize = 64;

/// From here on there are as many of the largest tile.
const MANY_TILES: usize = 4 * FEW_TILES;

impl ProductKind {
    /// All of them.
    pub const ALL: [ProductKind; 4] =
        [ProductKind::Matrices, ProductKind::Image, ProductKind::GradWeight, ProductKind::Winograd];

    /// Whether tiles of other than the usual number of columns are possible: panels are as wide as tiles, and workspaces hold
    /// whole ones.
    pub fn fits(self, tile: Tile, family: Family) -> bool {
        let is_same_width = |other: &Tile| other.columns == tile.columns;
        let tiles = family.tiles();
        let width = tiles.iter().find(|tile| **tile == Tile::USUAL).or(tiles.first());
        tiles.contains(&tile) && (self != ProductKind::Winograd || width.is_some_and(is_same_width))
    }
}

impl ProductSize {
    /// All of them.
    pub const ALL: [ProductSize; 5] =
        [ProductSize::Few, ProductSize::Medium, ProductSize::Low, ProductSize::Narrow, ProductSize::Large];

    /// The size of `depth` products of `m` rows by `n` columns.
    pub fn of(m: usize, n: usize, depth: usize) -> Self {
        let [rows, columns] = [Tile::USUAL.rows, Tile::USUAL.columns].map(|size| size as usize);
        // An eighth more of padding is made up for.
        let doubles = |size: usize, tile: usize| size.next_multiple_of(2 * tile) * 8 <= size.next_multiple_of(tile) * 9;
        let tiles = m.div_ceil(rows) * n.div_ceil(columns) * depth;
        match (doubles(m, rows), doubles(n, columns)) {
            _ if tiles < FEW_TILES => ProductSize::Few,
            _ if tiles < MANY_TILES => ProductSize::Medium,
            (false, false) => ProductSize::Medium,
            (false, true) => ProductSize::Low,
            (true, false) => ProductSize::Narrow,
            (true, true) => ProductSize::Large,
        }
    }

    /// The tile of the workgroup family where nothing was measured.
    fn usual(self, kind: ProductKind) -> Tile {
        match (self, kind) {
            (ProductSize::Few | ProductSize::Medium, _) | (ProductSize::Low, ProductKind::Winograd) => Tile::USUAL,
            (ProductSize::Low, _) => Tile::new(64, 128),
            (ProductSize::Narrow, _) | (ProductSize::Large, ProductKind::Winograd) => Tile::new(128, 64),
            (ProductSize::Large, _) => Tile::new(128, 128),
        }
    }
}

/// What was measured to be quickest for each kind and size of product, where that is not what a family takes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Table", into = "Table")]
pub struct Tiles([[Option<Tile>; ProductSize::ALL.len()]; ProductKind::ALL.len()]);

/// As it is written to files.
type Table = BTreeMap<ProductKind, BTreeMap<ProductSize, Tile>>;

impl From<Table> for Tiles {
    fn from(table: Table) -> Self {
        let mut tiles = Tiles::NONE;
        for (kind, sizes) in table {
            sizes.into_iter().for_each(|(size, tile)| tiles.set(kind, size, Some(tile)));
        }
        tiles
    }
}

impl From<Tiles> for Table {
    fn from(tiles: Tiles) -> Self {
        let mut table = Table::new();
        for (kind, size, tile) in tiles.iter() {
            table.entry(kind).or_default().insert(size, tile);
        }
        table
    }
}

impl Tiles {
    /// Nothing was measured.
    pub const NONE: Tiles = Tiles([[None; ProductSize::ALL.len()]; ProductKind::ALL.len()]);

    /// The same for all products.
    pub fn all(tile: Tile) -> Self {
        Tiles([[Some(tile); ProductSize::ALL.len()]; ProductKind::ALL.len()])
    }

    /// What was measured.
    pub fn get(&self, kind: ProductKind, size: ProductSize) -> Option<Tile> {
        self.0[kind as usize][size as usize]
    }

    /// Notes what was measured.
    pub fn set(&mut self, kind: ProductKind, size: ProductSize, tile: Option<Tile>) {
        self.0[kind as usize][size as usize] = tile;
    }

    /// All that was measured.
    pub fn iter(&self) -> impl Iterator<Item = (ProductKind, ProductSize, Tile)> {
        let classes = ProductKind::ALL.into_iter().flat_map(|kind| ProductSize::ALL.map(|size| (kind, size)));
        classes.filter_map(|(kind, size)| self.get(kind, size).map(|tile| (kind, size, tile)))
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        *self == Tiles::NONE
    }

    /// The tile of the workgroup family for a product: what was measured, if the family has it, or its usual choice.
    pub(crate) fn of_workgroup(&self, kind: ProductKind, size: ProductSize) -> Tile {
        let measured = self.get(kind, size).filter(|tile| kind.fits(*tile, Family::Workgroup));
        measured.unwrap_or_else(|| size.usual(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_tiles_are_for_products_that_fill_enough_of_them() {
        let usual = |m, n, depth| {
            let tile = Tiles::NONE.of_workgroup(ProductKind::Matrices, ProductSize::of(m, n, depth));
            [tile.rows, tile.columns]
        };
        for (product, tile) in [
            ((512, 512, 1), [64, 64]),
            ((512, 512, 3), [64, 64]),
            ((1024, 1024, 1), [128, 128]),
            ((128, 128, 64), [128, 128]),
            ((64, 20_000, 1), [64, 128]),
            ((20_000, 60, 1), [128, 64]),
            // 256 rows for 160 are too many, 640 for 576 are not.
            ((160, 20_000, 1), [64, 128]),
            ((576, 20_000, 1), [128, 128]),
            ((60, 60, 1000), [64, 64]),
        ] {
            let (m, n, depth) = product;
            assert_eq!(usual(m, n, depth), tile, "{product:?}");
        }
    }

    #[test]
    fn what_was_measured_counts_where_the_family_has_it() {
        let mut tiles = Tiles::NONE;
        tiles.set(ProductKind::Image, ProductSize::Large, Some(Tile::new(32, 32)));
        tiles.set(ProductKind::Image, ProductSize::Few, Some(Tile::new(7, 9)));
        tiles.set(ProductKind::Winograd, ProductSize::Few, Some(Tile::new(128, 128)));
        assert_eq!(tiles.of_workgroup(ProductKind::Image, ProductSize::Large), Tile::new(32, 32));
        assert_eq!(tiles.of_workgroup(ProductKind::Matrices, ProductSize::Large), Tile::new(128, 128));
        assert_eq!(tiles.of_workgroup(ProductKind::Image, ProductSize::Few), Tile::USUAL);
        assert_eq!(tiles.of_workgroup(ProductKind::Winograd, ProductSize::Few), Tile::USUAL, "panels keep their width");
        for family in [Family::Workgroup, Family::Subgroup { size: 4 }, Family::Subgroup { size: 8 }] {
            assert!(family.tiles().iter().filter(|tile| ProductKind::Winograd.fits(**tile, family)).count() > 1);
        }
    }

    #[test]
    fn tables_survive_the_round_trip_and_may_be_absent() {
        let mut tiles = Tiles::NONE;
        assert_eq!(serde_json::to_string(&tiles).expect("writes"), "{}");
        tiles.set(ProductKind::GradWeight, ProductSize::Low, Some(Tile::new(64, 128)));
        let text = serde_json::to_string(&tiles).expect("writes");
        assert_eq!(text, r#"{"grad_weight":{"low":[64,128]}}"#);
        assert_eq!(serde_json::from_str::<Tiles>(&text).expect("reads"), tiles);
        assert_eq!(tiles.iter().count(), 1);
        let older: Tiles =
            serde_json::from_str(r#"{"points":{"few":[64,64]}}"#).expect("reads what was written before");
        assert_eq!(older.get(ProductKind::Winograd, ProductSize::Few), Some(Tile::new(64, 64)));
        for bad in [r#"{"grad_weight":{"lower":[64,128]}}"#, r#"{"weights":{}}"#, r#"{"winograd":{"few":[-1,2]}}"#] {
            assert!(serde_json::from_str::<Tiles>(bad).is_err(), "{bad}");
        }
    }
}
