//! The registry of losses.

use super::Loss;

/// A kind of loss, as users see it.
#[derive(Clone, Copy, Debug)]
pub struct LossKind {
    /// What model files write.
    pub kind: &'static str,
    /// The keys of its table, with their defaults, and what its targets are.
    pub settings: &'static str,
    /// Names that other frameworks have for it, in lower case and with letters and digits alone.
    pub elsewhere: &'static [&'static str],
}

/// The registry of losses: one entry each, from which follow the table of the documentation and what is said to someone who
/// uses the name of another framework.
macro_rules! registry {
    ($($variant:ident = $kind:literal [$($elsewhere:literal),*], settings $settings:literal;)*) => {
        impl Loss {
            /// All kinds.
            pub const KINDS: &[LossKind] =
                &[$(LossKind { kind: $kind, settings: $settings, elsewhere: &[$($elsewhere),*] }),*];

            /// Its kind as a model file writes it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Loss::$variant { .. } => $kind,)*
                    Loss::Custom(_) => "custom",
                }
            }
        }
    };
}

registry! {
    CrossEntropy = "cross-entropy" ["categoricalcrossentropy", "sparsecategoricalcrossentropy", "nll", "nllloss", "ce", "crossentropyloss"],
        settings "`label_smoothing` (0), `ignore_index` (none), `class_weights` (all 1), `classes_last` (false), `from_logits` (true); \
            labels for each sample, pixel or time step";
    SoftCrossEntropy = "soft-cross-entropy" [],
        settings "`label_smoothing` (0), `class_weights` (all 1), `from_logits` (true); probabilities";
    Dice = "dice" ["diceloss"], settings "`smooth` (1), `ignore_index` (none) of labels; or `sigmoid = true` and probabilities";
    Bce = "bce" ["binarycrossentropy", "bceloss"], settings "`pos_weight` (1): one number, or one for each channel; of probabilities, for a model that ends in `sigmoid`";
    BceWithLogits = "bce-with-logits" ["binarycrossentropy", "bceloss"],
        settings "`pos_weight` (1): one number, or one for each channel";
    Mse = "mse" ["meansquarederror", "mseloss", "l2", "l2loss"], settings "";
    Mae = "mae" ["meanabsoluteerror", "l1", "l1loss"], settings "";
    Huber = "huber" ["smoothl1", "smoothl1loss", "huberloss"], settings "`delta` (1)";
    Sum = "sum" [], settings "`terms`, such as `[[1.0, \"cross-entropy\"], [0.5, \"dice\"]]`";
}
