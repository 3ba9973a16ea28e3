//! The registry of metrics.

use super::MetricKind;

/// A kind of metric, as users see it.
#[derive(Clone, Copy, Debug)]
pub struct MetricEntry {
    /// What files write.
    pub kind: &'static str,
    /// The keys of its table, with their defaults, and what its targets are.
    pub settings: &'static str,
    /// What logs call it; settings may add to it: see [`MetricKind::name`].
    pub name: &'static str,
    /// Whether higher values are better.
    pub higher_is_better: bool,
    /// Names that other frameworks have for it, in lower case and with letters and digits alone.
    pub elsewhere: &'static [&'static str],
}

/// The registry of metrics: one entry each, from which follow the table of the documentation, what is said to someone who uses the
/// name of another framework, and which values are better.
macro_rules! registry {
    ($(
        $variant:ident = $kind:literal named $name:literal, higher_is_better $higher:literal [$($elsewhere:literal),*],
        settings $settings:literal;
    )*) => {
        impl MetricKind {
            /// All kinds.
            pub const KINDS: &[MetricEntry] = &[$(MetricEntry {
                kind: $kind,
                settings: $settings,
                name: $name,
                higher_is_better: $higher,
                elsewhere: &[$($elsewhere),*],
            }),*];

            /// Its kind as a file writes it.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(MetricKind::$variant { .. } => $kind,)*
                    MetricKind::Custom(_) => "custom",
                }
            }
        }
    };
}

registry! {
    Accuracy = "accuracy" named "accuracy", higher_is_better true
        ["acc", "categoricalaccuracy", "sparsecategoricalaccuracy", "binaryaccuracy", "accuracyscore", "multiclassaccuracy"],
        settings "`threshold` (0.5) of yes and no; labels, one-hot values, or values of yes and no";
    TopK = "top-k" named "top_k_accuracy", higher_is_better true
        ["topkcategoricalaccuracy", "sparsetopkcategoricalaccuracy", "topkaccuracyscore", "top5", "topk"],
        settings "`k` (5); labels or one-hot values";
    Precision = "precision" named "precision", higher_is_better true ["precisionscore"],
        settings "`average` (`macro`, of one output `binary`; or `micro`, `weighted`, `none`), `threshold` (0.5) of yes and no; \
            as accuracy";
    Recall = "recall" named "recall", higher_is_better true ["recallscore", "sensitivity", "truepositiverate"],
        settings "as precision";
    F1 = "f1" named "f1", higher_is_better true ["f1score", "fscore", "fmeasure"], settings "as precision";
    ConfusionMatrix = "confusion-matrix" named "confusion_matrix", higher_is_better true ["confmat"],
        settings "`threshold` (0.5) of yes and no; as accuracy, but one class at each place";
    Auc = "auc" named "auc", higher_is_better true ["rocauc", "auroc", "rocaucscore"],
        settings "`average` of several classes or outputs (`macro`; or `micro`, `weighted`, `none`); as accuracy";
    Mae = "mae" named "mae", higher_is_better false ["meanabsoluteerror", "l1"], settings "values";
    Mse = "mse" named "mse", higher_is_better false ["meansquarederror", "l2"], settings "values";
    Rmse = "rmse" named "rmse", higher_is_better false ["rootmeansquarederror"], settings "values";
    R2 = "r2" named "r2", higher_is_better true ["r2score", "coefficientofdetermination"],
        settings "`multioutput` (`uniform-average`; or `raw-values`, `variance-weighted`); values";
    Iou = "iou" named "iou", higher_is_better true ["meaniou", "jaccard", "jaccardindex", "jaccardscore", "binaryiou"],
        settings "as precision";
    Dice = "dice" named "dice", higher_is_better true ["dicescore", "dicecoefficient"], settings "as precision";
    Perplexity = "perplexity" named "perplexity", higher_is_better false ["ppl"], settings "labels, or probabilities of classes";
}

/// Whether higher values are better, as the name of a value says: `val_accuracy`, `f1_micro`, `val_loss`. `None` where it says nothing.
///
/// ```
/// use tightfit::train::higher_is_better;
///
/// assert_eq!(higher_is_better("val_top_5_accuracy"), Some(true));
/// assert_eq!(higher_is_better("dice_loss"), Some(false));
/// assert_eq!(higher_is_better("bleu"), None);
/// ```
pub fn higher_is_better(name: &str) -> Option<bool> {
    let has = |part: &str| format!("_{name}_").contains(&format!("_{part}_"));
    if has("loss") || has("error") {
        return Some(false);
    }
    let mut known = MetricKind::KINDS.iter().filter(|entry| has(entry.name)).map(|entry| entry.higher_is_better);
    let first = known.next()?;
    known.all(|other| other == first).then_some(first)
}
