//! A plot as SVG: lines of points, with both axes logarithmic, so that a power of n is a straight line.

use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 480.0;
/// Margins for the labels of the axes.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Distinct without colour too, by the marks of the points.
const LOOKS: [(&str, &str); 4] = [
    ("#0b6e99", "circle"),
    ("#c0392b", "square"),
    ("#2e7d32", "hollow circle"),
    ("#6a1b9a", "hollow square"),
];

/// One line of the plot.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its label.
    pub name: String,
    /// Its points, by rising x. All numbers are positive.
    pub points: Vec<(f64, f64)>,
}

/// Draws lines over two axes with these labels.
pub fn plot(title: &str, x: &str, y: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let horizontal = Axis::over(points().map(|(x, _)| *x), LEFT, WIDTH - RIGHT);
    let vertical = Axis::over(points().map(|(_, y)| *y), HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut text = |at: (f64, f64), anchor: &str, words: &str| {
        let (x, y) = at;
        writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        )
        .expect("a string takes all");
    };
    text((LEFT, TOP - 18.0), "start", title);
    text(
        (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 12.0),
        "middle",
        x,
    );
    text((LEFT - 8.0, TOP - 4.0), "end", y);
    for tick in horizontal.ticks() {
        let at = (horizontal.place(tick), HEIGHT - BOTTOM + 18.0);
        text(at, "middle", &tick.to_string());
    }
    for tick in vertical.ticks() {
        let at = (LEFT - 8.0, vertical.place(tick) + 4.0);
        text(at, "end", &tick.to_string());
    }
    for (number, line) in lines.iter().enumerate() {
        if let Some((x, y)) = line.points.last() {
            // The labels of lines that end close to each other must not overlap.
            let below = if number < lines.len() / 2 { -4.0 } else { 12.0 };
            let at = (horizontal.place(*x) + 8.0, vertical.place(*y) + below);
            text(at, "start", &line.name);
        }
    }
    for tick in horizontal.ticks() {
        let x = horizontal.place(tick);
        rule(&mut svg, (x, TOP), (x, HEIGHT - BOTTOM));
    }
    for tick in vertical.ticks() {
        let y = vertical.place(tick);
        rule(&mut svg, (LEFT, y), (WIDTH - RIGHT, y));
    }
    for (line, look) in lines.iter().zip(LOOKS.iter().cycle()) {
        let places = line.points.iter();
        let places: Vec<_> = places
            .map(|(x, y)| (horizontal.place(*x), vertical.place(*y)))
            .collect();
        draw(&mut svg, &places, *look);
    }
    svg + "</svg>\n"
}

/// A logarithmic axis, and its place in the picture.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        Self {
            least: values.clone().fold(f64::INFINITY, f64::min),
            most: values.fold(0.0, f64::max),
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        self.from + part * (self.to - self.from)
    }

    /// 1, 2 and 5 times the powers of ten, within the range.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let decades = (0..9).map(|power| 10f64.powi(power));
        decades
            .flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * decade))
            .filter(|tick| (self.least..=self.most).contains(tick))
    }
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    writeln!(
        svg,
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#ddd\"/>",
        from.0, from.1, to.0, to.1
    )
    .expect("a string takes all");
}

fn draw(svg: &mut String, places: &[(f64, f64)], (colour, mark): (&str, &str)) {
    let corners: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let mut add = |what: String| *svg += &what;
    add(format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n",
        corners.join(" ")
    ));
    let fill = match mark.starts_with("hollow") {
        true => "white",
        false => colour,
    };
    for (x, y) in places {
        add(match mark.ends_with("circle") {
            true => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\""),
            false => format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\"",
                x - 3.0,
                y - 3.0
            ),
        });
        add(format!(" fill=\"{fill}\" stroke=\"{colour}\"/>\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_straight_lines() {
        let axis = Axis::over([1.0, 100.0].into_iter(), 0.0, 200.0);
        assert!((axis.place(10.0) - 100.0).abs() < 1e-9);
        let ticks: Vec<f64> = axis.ticks().collect();
        assert_eq!(ticks, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn every_point_is_drawn_once() {
        let line = |name: &str, power: i32| Line {
            name: name.to_owned(),
            points: (1..=4)
                .map(|n| (n.into(), f64::from(n).powi(power)))
                .collect(),
        };
        let svg = plot("title", "n", "messages", &[line("one", 1), line("two", 2)]);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">two</text>"));
    }
}
