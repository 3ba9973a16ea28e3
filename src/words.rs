//! Names and numbers in messages.

/// Names that are longer than this are no slips of the hand.
const LONGEST_NAME: usize = 64;
/// How alike names are that may stand for each other, from 0 to 1.
const NEAR: f64 = 0.75;
/// Lists up to this length are shown although a name is near, up to that where none is.
const SHORT_LIST: usize = 10;
const LONG_LIST: usize = 50;

/// The known names that are most like one that is not known, best first: `conv1d` and `conv2d` for `Conv`. Case, dashes and
/// underscores do not count.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain = |name: &str| -> String {
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(LONGEST_NAME).collect()
    };
    let wanted = plain(name);
    let likeness = |known: &str| {
        let known = plain(known);
        let (short, long) = if wanted.len() < known.len() { (&wanted, &known) } else { (&known, &wanted) };
        // Of a name that is a part of another, the letters may be too far apart to count for each other.
        let is_part = short.len() >= 3 && long.contains(short.as_str());
        let part = if is_part { 0.8 + 0.2 * short.len() as f64 / long.len() as f64 } else { 0.0 };
        // Of short names, letters that changed places count for nothing else.
        let slip = if short.len() >= 3 && strsim::osa_distance(&wanted, &known) == 1 { 0.8 } else { 0.0 };
        part.max(slip).max(strsim::jaro(&wanted, &known))
    };
    let mut near: Vec<_> = known.into_iter().map(|known| (likeness(known), known)).collect();
    near.retain(|(likeness, _)| *likeness > NEAR);
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let best = near.first().map_or(0.0, |(likeness, _)| *likeness);
    near.into_iter().take_while(|(likeness, _)| best - likeness < 0.03).take(3).map(|(_, known)| known).collect()
}

/// The sentence that says that there is no such name, and which one may be meant.
pub fn unknown<'a>(what: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    let near: Vec<_> = nearest(name, known.iter().copied()).into_iter().map(|name| format!("`{name}`")).collect();
    let name = name.escape_debug();
    match (&near[..], &known[..]) {
        ([], []) => format!("unknown {what} `{name}`: there is none"),
        ([], _) => {
            let shown = known[..known.len().min(LONG_LIST)].join(", ");
            let more = if known.len() > LONG_LIST { ", …" } else { "" };
            format!("unknown {what} `{name}`: choose one of {shown}{more}")
        }
        _ if known.len() > SHORT_LIST => format!("unknown {what} `{name}`: did you mean {}?", near.join(" or ")),
        _ => format!("unknown {what} `{name}`: did you mean {}? (one of {})", near.join(" or "), known.join(", ")),
    }
}

/// `1 tensor`, `2 tensors`, `2 batches`.
pub fn plural(count: usize, what: &str) -> String {
    let ending = match count {
        1 => "",
        _ if what.ends_with("batch") => "es",
        _ => "s",
    };
    format!("{count} {what}{ending}")
}

/// A value as people read it: four digits that count.
pub fn format_value(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return (value + 0.0).to_string();
    }
    let power = value.abs().log10().floor();
    if !(-4.0..6.0).contains(&power) {
        let text = format!("{value:.3e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
        return format!("{digits}e{exponent}");
    }
    let decimals = (3.0 - power).max(0.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand_find_their_name() {
        let models = crate::models::NAMES;
        for (wrong, right) in [
            ("resnet5", "resnet50"),
            ("ResNet-50", "resnet50"),
            ("mnist_cnn", "mnist-cnn"),
            ("mnistmlp", "mnist-mlp"),
            ("mobilenetv2", "mobilenet_v2"),
            ("vgg", "vgg16"),
            ("u-net", "unet"),
            ("efficientnet-b0", "efficientnet_b0"),
            ("charlstm", "char_lstm"),
        ] {
            assert_eq!(nearest(wrong, models).first(), Some(&right), "{wrong}: {:?}", nearest(wrong, models));
        }
        for wrong in ["", "transformer", "list", "x"] {
            assert!(nearest(wrong, models).is_empty(), "{wrong}: {:?}", nearest(wrong, models));
        }
        assert_eq!(nearest("Conv", ["linear", "conv1d", "conv2d"]), ["conv1d", "conv2d"], "as near as each other");
        assert!(unknown("model", "bert", models).ends_with("gpt"), "all where none is near");
    }

    #[test]
    fn few_names_are_listed_beside_the_near_one() {
        assert_eq!(nearest("BatchNorm2d", ["batch_norm", "layer_norm", "linear"]), ["batch_norm"]);
        assert_eq!(unknown("loss", "mes", ["mse", "mae"]), "unknown loss `mes`: did you mean `mse`? (one of mse, mae)");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|count| plural(count, "tensor")), ["0 tensors", "1 tensor", "2 tensors"]);
        assert_eq!(["batch", "epoch"].map(|what| plural(2, what)), ["2 batches", "2 epochs"]);
    }

    #[test]
    fn values_have_few_digits() {
        let shown = [0.0, 1.0, 0.123_456, 1234.56, 1e-5, 1.5e-7, 123_456.0, 3e9, -0.5, f64::NAN].map(format_value);
        assert_eq!(shown, ["0", "1", "0.1235", "1235", "1e-5", "1.5e-7", "123456", "3e9", "-0.5", "NaN"]);
    }
}
