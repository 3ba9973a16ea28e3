//! What the bar of a training says, in as many columns as there are.

use indicatif::{HumanDuration, ProgressBar};
use tightfit::plan::format_bytes;

/// What does not fit the width of a terminal is left out, by [`message`] before it comes to that.
pub(crate) const BAR: &str = "{bar:10} {pos}/{len}  {eta} left  {wide_msg}";
/// Of the bar itself.
const BAR_COLUMNS: usize = 10;

/// Between two values.
pub(crate) const GAP: &str = "  ";

/// What a bar says in so many columns. What does not fit is left out whole: validation first, then samples a second, then the budget
/// beside the peak, the peak, and accuracy.
pub(crate) fn message(
    scores: &[String],
    rate: Option<&String>,
    memory: &[String],
    validation: &[String],
    columns: usize,
) -> String {
    let fits = |items: &[&String]| {
        let gaps = GAP.len() * items.len().saturating_sub(1);
        items.iter().map(|item| item.chars().count()).sum::<usize>() + gaps <= columns
    };
    let forms = [rate, None].into_iter().flat_map(|rate| memory.iter().map(move |memory| (rate, Some(memory))));
    let mut choices =
        forms.chain([(None, None)]).map(|(rate, memory)| scores.iter().chain(rate).chain(memory).collect::<Vec<_>>());
    let mut items = choices.find(|items| fits(items)).unwrap_or_else(|| scores.iter().take(1).collect());
    for item in validation {
        items.push(item);
        if !fits(&items) {
            items.pop();
            break;
        }
    }
    items.into_iter().map(String::as_str).collect::<Vec<_>>().join(GAP)
}

/// Columns for the message of a bar on a terminal of this width: all but for [`BAR`]'s other parts.
pub(crate) fn columns_beside(bar: &ProgressBar, total_steps: u64, width: usize) -> usize {
    // The time that is left may have a digit more when it is drawn.
    let eta = format!("{:#}", HumanDuration(bar.eta())).len().max(3);
    let others = BAR_COLUMNS + format!(" {}/{total_steps}   left  ", bar.position()).len() + eta;
    width.saturating_sub(others)
}

/// A peak against a budget, where there is one: the longest form first.
pub(crate) fn forms(peak_bytes: u64, budget_bytes: Option<u64>) -> Vec<String> {
    let peak = format_bytes(peak_bytes);
    let alone = format!("peak {peak}");
    let Some(budget) = budget_bytes.map(format_bytes) else { return vec![alone] };
    let mut forms = vec![format!("peak {peak} of {budget}")];
    // The unit once where it is the same.
    if let (Some((number, unit)), Some((_, of))) = (peak.split_once(' '), budget.split_once(' '))
        && unit == of
    {
        forms.push(format!("peak {number}/{budget}"));
    }
    forms.push(alone);
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_cuts_nothing_in_two() {
        let scores = ["loss 0.1235", "accuracy 99.12%"].map(str::to_owned);
        let rate = "3600 samples/s".to_owned();
        let memory = forms(12_478_054, Some(12 << 20));
        assert_eq!(memory, ["peak 11.9 MiB of 12.0 MiB", "peak 11.9/12.0 MiB", "peak 11.9 MiB"]);
        let validation = ["val_loss 0.2060".to_owned(), "val_accuracy 94.55%".to_owned()];
        let told = |columns| message(&scores, Some(&rate), &memory, &validation, columns);
        // A terminal of 80 columns has about 49 beside the bar.
        for (columns, words) in [
            (
                200,
                "loss 0.1235  accuracy 99.12%  3600 samples/s  peak 11.9 MiB of 12.0 MiB  val_loss 0.2060  val_accuracy 94.55%",
            ),
            (100, "loss 0.1235  accuracy 99.12%  3600 samples/s  peak 11.9 MiB of 12.0 MiB  val_loss 0.2060"),
            (64, "loss 0.1235  accuracy 99.12%  3600 samples/s  peak 11.9/12.0 MiB"),
            (49, "loss 0.1235  accuracy 99.12%  peak 11.9/12.0 MiB"),
            (44, "loss 0.1235  accuracy 99.12%  peak 11.9 MiB"),
            (30, "loss 0.1235  accuracy 99.12%"),
            (20, "loss 0.1235"),
        ] {
            assert_eq!(told(columns), words);
            assert!(words.len() <= columns);
        }
        assert_eq!(forms(1 << 30, None), ["peak 1.0 GiB"]);
        assert_eq!(forms(1 << 20, Some(1 << 30)).len(), 2, "of other units");
    }

    #[test]
    fn the_parts_beside_the_message_are_counted() {
        let bar = ProgressBar::hidden();
        bar.set_length(31_200);
        bar.set_position(1200);
        let drawn = "━━━━━━━━━━ 1200/31200  59m left  ";
        assert!(columns_beside(&bar, 31_200, 80) <= 80 - drawn.chars().count());
        assert_eq!(columns_beside(&bar, 31_200, 10), 0);
    }
}
