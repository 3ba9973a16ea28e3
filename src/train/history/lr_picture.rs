//! What a search for a learning rate found, as a picture.

use std::fmt::Write as _;

use super::axis::Axis;
use crate::svg::{self, end_of, escape, width};
use crate::tensor::format_value;
use crate::train::trainer::LrCurve;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 52.0;

const STYLE: &str = "\
.grid{stroke:#e9ecef;stroke-width:1}.frame{fill:none;stroke:#adb5bd}.name{font-size:13px;font-weight:bold}\
.line{fill:none;stroke:#1d5f9e;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}\
.mark{stroke:#d9622b;stroke-width:1.6;stroke-dasharray:5 4}.marked{fill:#d9622b}";

impl LrCurve {
    /// The smoothed loss over learning rates, on a logarithmic axis, as an SVG picture in which the suggestion is marked.
    pub fn svg(&self, title: &str) -> String {
        let mut out = String::new();
        let mut put = |line: String| {
            out.push_str(&line);
            out.push('\n');
        };
        put(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">"
        ));
        put(format!("<title>{}</title>", escape(&format!("learning rates of {title}"))));
        put(format!("<style>{}{STYLE}</style>", svg::STYLE));
        put(format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"));
        let heading = end_of(title, WIDTH - LEFT - RIGHT, 20.0);
        put(format!("<text class=\"title\" x=\"{LEFT}\" y=\"32\">{}</text>", escape(&heading)));
        let found = match self.suggestion {
            Some(lr) => format!("suggested learning rate {}, where the loss falls fastest", format_value(rounded(lr))),
            None => "no suggestion: no clear fall of the loss".to_owned(),
        };
        put(format!("<text class=\"sub\" x=\"{LEFT}\" y=\"54\">{found}</text>"));
        put(format!("<text class=\"name\" x=\"{LEFT}\" y=\"{:.1}\">smoothed loss</text>", TOP - 10.0));
        self.plot(&mut put);
        put("</svg>".to_owned());
        out
    }

    /// The largest loss that is shown. Next to those of a search that diverges, all others would look alike.
    fn most_shown(&self) -> f64 {
        let lowest = (0..self.points.len()).min_by(|&one, &other| self.points[one].1.total_cmp(&self.points[other].1));
        let falling = &self.points[..lowest.map_or(0, |at| at + 1)];
        let (most, least) = falling
            .iter()
            .fold((f64::NEG_INFINITY, f64::INFINITY), |(most, least), (_, loss)| (most.max(*loss), least.min(*loss)));
        if most > least { most + (most - least) / 2.0 } else { f64::INFINITY }
    }

    fn plot(&self, put: &mut dyn FnMut(String)) {
        let (across, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let (right, bottom) = (LEFT + across, TOP + height);
        put(format!("<rect class=\"frame\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{across:.1}\" height=\"{height:.1}\"/>"));
        put(format!(
            "<text class=\"small\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">learning rate (logarithmic)</text>",
            bottom + 34.0
        ));
        let most = self.most_shown();
        let losses = Axis::of(self.points.iter().map(|(_, loss)| *loss).filter(|loss| *loss <= most), true);
        let (Some(losses), Some(&(first, _)), Some(&(last, _))) = (losses, self.points.first(), self.points.last())
        else {
            let y = TOP + height / 2.0;
            let middle = format!("x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\"", LEFT + across / 2.0);
            return put(format!("<text class=\"sub\" {middle}>no step had a loss that is a number</text>"));
        };
        // One point alone has room on both sides.
        let rates =
            if first < last { Axis::logarithmic(first, last) } else { Axis::logarithmic(first / 2.0, first * 2.0) };
        let x = |lr: f64| LEFT + across * rates.share(lr).clamp(0.0, 1.0);
        let y = |loss: f64| TOP + height * (1.0 - losses.share(loss).clamp(-9.0, 9.0));
        for (&tick, label) in losses.ticks.iter().zip(losses.labels()) {
            let at = y(tick);
            put(format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"));
            let place = format!("x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\"", LEFT - 7.0, at + 4.0);
            put(format!("<text class=\"small\" {place}>{label}</text>"));
        }
        for (&tick, label) in rates.ticks.iter().zip(rates.labels()) {
            let at = x(tick);
            put(format!("<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>"));
            let place = format!("x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\"", bottom + 17.0);
            put(format!("<text class=\"small\" {place}>{label}</text>"));
        }
        let mut points = String::new();
        for &(lr, loss) in &self.points {
            let _ = write!(points, "{:.1},{:.1} ", x(lr), y(loss));
        }
        put(format!(
            "<clipPath id=\"plot\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{across:.1}\" height=\"{height:.1}\"/></clipPath>"
        ));
        put(format!("<polyline class=\"line\" clip-path=\"url(#plot)\" points=\"{}\"/>", points.trim_end()));
        if let Some(lr) = self.suggestion {
            let (at, text) = (x(lr), format_value(rounded(lr)));
            put(format!("<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>"));
            let fits = at + 6.0 + width(&text, 12.0) < right;
            let (from, anchor) = if fits { (at + 6.0, "start") } else { (at - 6.0, "end") };
            let place = format!("x=\"{from:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\"", TOP + 16.0);
            put(format!("<text class=\"marked\" {place}>{text}</text>"));
        }
    }
}

/// Two digits: no search is more exact.
fn rounded(lr: f64) -> f64 {
    format!("{lr:.1e}").parse().unwrap_or(lr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: Vec<(f64, f64)>, suggestion: Option<f64>) -> LrCurve {
        LrCurve { points, suggestion }
    }

    #[test]
    fn the_suggestion_is_marked_where_it_is() {
        let of = |step: i32| (10f64.powf(f64::from(step) / 10.0 - 6.0), 2.0 - f64::from(step) / 40.0);
        let svg = curve((0..=40).map(of).collect(), Some(1e-4)).svg("a <model>");
        assert!(svg.contains("a &lt;model&gt;") && svg.contains("suggested learning rate 0.0001"), "{svg}");
        for tick in ["1e-6", "1e-5", "0.0001", "0.001", "0.01"] {
            assert!(svg.contains(&format!(">{tick}</text>")), "{tick}\n{svg}");
        }
        // Between the ends of four decades, it is in the middle.
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        assert!(svg.contains(&format!("<line class=\"mark\" x1=\"{middle:.1}\"")), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 1);
    }

    #[test]
    fn what_diverges_leaves_the_picture() {
        let svg = curve(vec![(1e-3, 2.0), (1e-2, 1.0), (1e-1, 1.4), (1.0, 400.0)], Some(3e-3)).svg("m");
        assert!(svg.contains(">1.0</text>") && svg.contains(">2.0</text>") && !svg.contains(">400"), "{svg}");
        assert!(svg.contains("clip-path=\"url(#plot)\""), "{svg}");
    }

    #[test]
    fn any_curve_is_a_picture() {
        for (curve, words) in [
            (curve(vec![], None), "no step had a loss that is a number"),
            (curve(vec![(0.1, 2.0)], None), "no suggestion"),
            (curve(vec![(0.1, 2.0), (0.10001, 2.0)], Some(0.10001)), ">0.1</text>"),
            (curve(vec![(f64::MIN_POSITIVE, 0.0), (f64::MAX, f64::MAX)], Some(1e300)), "1e300"),
        ] {
            let svg = curve.svg("m");
            assert!(svg.contains(words) && svg.ends_with("</svg>\n"), "{words}\n{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
