//! Figures of what a model predicted.

/// Intersection over union of each class: of all places where prediction or label is the class, the share where both are;
/// `None` of a class that is in neither. Labels that are not below `classes` do not count.
///
/// `logits` are as [`Trainer::predict`](super::Trainer::predict) gives them, `[N, classes, …]`, and `labels` `[N, …]`.
///
/// ```
/// use tightfit::train::iou;
///
/// // One image of four pixels and two classes: the prediction is 0, 0, 1, 1.
/// let logits = [2.0, 2.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
/// let shares = iou(&logits, &[0, 1, 1, 1], 4, 2);
/// assert_eq!(shares, [Some(1.0 / 2.0), Some(2.0 / 3.0)]);
/// ```
///
/// Source: <https://en.wikipedia.org/wiki/Jaccard_index>
pub fn iou(logits: &[f32], labels: &[u32], places: usize, classes: usize) -> Vec<Option<f64>> {
    let (mut both, mut either) = (vec![0u64; classes], vec![0u64; classes]);
    let samples = logits.chunks_exact((places * classes).max(1)).zip(labels.chunks_exact(places.max(1)));
    for (logits, labels) in samples {
        for (place, &label) in labels.iter().enumerate() {
            let label = label as usize;
            if label >= classes {
                continue;
            }
            let logit = |class: usize| logits[class * places + place];
            let predicted = (0..classes).fold(0, |best, class| if logit(class) > logit(best) { class } else { best });
            either[label] += 1;
            if predicted == label {
                both[label] += 1;
            } else {
                either[predicted] += 1;
            }
        }
    }
    let share = |(&both, &either): (&u64, &u64)| (either > 0).then(|| both as f64 / either as f64);
    both.iter().zip(&either).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::iou;

    #[test]
    fn classes_that_are_nowhere_have_no_share() {
        let logits = [1.0, 0.0, 0.0, 1.0, -1.0, -1.0];
        assert_eq!(iou(&logits, &[0, 1], 2, 3), [Some(1.0), Some(1.0), None]);
        assert_eq!(iou(&logits, &[1, 255], 2, 3), [Some(0.0), Some(0.0), None]);
        assert_eq!(iou(&[], &[], 0, 0), []);
    }
}
