//! Images from PNG and JPEG files.
//!
//! | type | what |
//! |---|---|
//! | [`ImageFolder`] | a folder for each class |
//! | [`ImageList`] | a CSV file of paths and labels, or of paths and numbers |
//! | [`ImageFiles`] | files without labels, for predictions |
//! | [`MaskedImages`] | images, and masks with a class for each pixel |
//! | [`TarShards`](super::TarShards) | archives in WebDataset's layout |
//!
//! A sample is `[channels, height, width]` in bytes. Formats are told by content, not by name. All colors of PNG (palettes, 16 bits, alpha)
//! and JPEG (grey, CMYK) become grey or red, green and blue: alpha is dropped, 16 bits become the nearest of 8. Images are turned as their
//! EXIF orientation says. Nothing but an index is in memory; a file is decoded when its sample is read, and has no more than
//! [`max_pixels`](ImageOptions::max_pixels).

mod decode;
mod files;
mod folder;
mod inspect;
mod list;
mod mask;
mod masked;
mod names;
mod options;
mod paths;
mod reader;
mod resize;

pub use files::ImageFiles;
pub use folder::ImageFolder;
pub use inspect::{BrokenFile, Extents, InspectOptions, Inspection, inspect, inspect_list};
pub use list::{ImageList, ListOptions, ListTarget};
pub use mask::MaskOptions;
pub(super) use mask::Masks;
pub use masked::MaskedImages;
pub(super) use names::Names;
pub use options::{ImageOptions, Resize};
pub(super) use paths::{Paths, check_index, is_image};
pub(super) use reader::Reader;
pub use reader::{decode, read};
