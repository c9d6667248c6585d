//! A timeline of holds, with the faults drawn in.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use bellwether_testkit::history::{Moment, What};

use super::fault_name;
use super::page::escape;
use crate::recipe::Recipe;
use crate::record::{Did, Record};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 70.0;
const ROW: f64 = 22.0;
const TOP: f64 = 18.0;

/// Timelines of one round. All of them have the same rows and the same scale, so what they share is drawn once, and referred to.
pub(super) struct Timelines<'a> {
    records: &'a [Record],
    first: Moment,
    last: Moment,
    workers: usize,
}

impl<'a> Timelines<'a> {
    /// Timelines of these records, which are in the order of time; `None` if there are none.
    pub(super) fn new(records: &'a [Record]) -> Option<Self> {
        Some(Self {
            records,
            first: records.first()?.at,
            last: records.last()?.at,
            workers: records.iter().map(|record| record.who).max()? + 1,
        })
    }

    /// What is behind and before the holds of each recipe: rows and pauses, faults and the scale.
    pub(super) fn shared(&self) -> String {
        let bottom = self.row(self.workers);
        let mut behind = String::new();
        for who in 0..self.workers {
            let middle = self.row(who) + ROW * 0.65;
            let _ = write!(
                behind,
                "<text x=\"0\" y=\"{middle:.1}\">worker {who}</text>"
            );
        }
        for (who, from, to) in pauses(self.records, self.last) {
            let _ = write!(
                behind,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#ccc\"><title>stopped</title></rect>",
                self.x(from),
                self.row(who) + 1.0,
                (self.x(to) - self.x(from)).max(0.5),
                ROW - 2.0
            );
        }
        let mut before = String::new();
        for record in self.records.iter().filter(|record| record.recipe.is_none()) {
            let Some(name) = fault_name(record).filter(|name| name != "paused") else {
                continue;
            };
            let is_servers = name.starts_with("server") || name.starts_with("member");
            let (from, to, colour) = match is_servers {
                true => (TOP - 6.0, bottom, "#7a3fb0"),
                false => (self.row(record.who), self.row(record.who) + ROW, "#e08a00"),
            };
            let _ = write!(
                before,
                "<path d=\"M{:.1} {from:.1}V{to:.1}\" stroke=\"{colour}\"><title>{}</title></path>",
                self.x(record.at),
                escape(&name)
            );
        }
        let span = self.span();
        for part in 0..=5 {
            let at = span * f64::from(part) / 5.0;
            let place = LEFT + (WIDTH - LEFT - 30.0) * f64::from(part) / 5.0;
            let _ = write!(
                before,
                "<text x=\"{place:.1}\" y=\"{:.1}\" fill=\"#666\">{at:.1} s</text>",
                bottom + 12.0
            );
        }
        format!(
            "<svg width=\"0\" height=\"0\"><defs><g id=\"behind\">{behind}</g><g id=\"before\">{before}</g></defs></svg>"
        )
    }

    /// The holds of a recipe as an SVG; `None` if it has none.
    pub(super) fn render(&self, recipe: Recipe) -> Option<String> {
        let bars = bars(recipe, self.records, self.last);
        if bars.is_empty() {
            return None;
        }
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" width=\"{WIDTH}\" font-size=\"11\" font-family=\"sans-serif\">\
             <use href=\"#behind\"/>",
            self.row(self.workers) + 16.0
        );
        // One path for all of a kind: there may be thousands.
        for (end, colour) in [
            (TimelineEnd::Release, "#2f6fbf"),
            (TimelineEnd::Drop, "#d33b3b"),
        ] {
            let mut path = String::new();
            for bar in bars.iter().filter(|bar| bar.end == end) {
                let _ = write!(
                    path,
                    "M{:.1} {:.0}h{:.1}",
                    self.x(bar.from),
                    self.row(bar.who) + ROW / 2.0,
                    self.width(bar)
                );
            }
            let _ = write!(
                svg,
                "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"{}\" stroke-opacity=\".8\"/>",
                ROW - 8.0
            );
        }
        for bar in bars.iter().filter(|bar| bar.end == TimelineEnd::Loss) {
            let _ = write!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#d33b3b\"><title>lost: token {}, {:.0} ms</title></rect>",
                self.x(bar.from),
                self.row(bar.who) + 4.0,
                self.width(bar),
                ROW - 8.0,
                bar.token,
                bar.to.since(bar.from).as_secs_f64() * 1e3
            );
        }
        svg.push_str("<use href=\"#before\"/></svg>");
        Some(svg)
    }

    fn span(&self) -> f64 {
        self.last.since(self.first).as_secs_f64().max(0.001)
    }

    fn x(&self, at: Moment) -> f64 {
        LEFT + (WIDTH - LEFT) * at.since(self.first).as_secs_f64() / self.span()
    }

    fn row(&self, who: usize) -> f64 {
        TOP + ROW * who as f64
    }

    fn width(&self, bar: &Bar) -> f64 {
        (self.x(bar.to) - self.x(bar.from)).max(0.4)
    }
}

/// One hold.
struct Bar {
    who: usize,
    token: i64,
    from: Moment,
    to: Moment,
    end: TimelineEnd,
}

/// How a hold ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimelineEnd {
    Release,
    /// Its holder dropped it, or was killed.
    Drop,
    Loss,
}

fn bars(recipe: Recipe, records: &[Record], last: Moment) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    let mut open: HashMap<(usize, i64), usize> = HashMap::new();
    for record in records.iter().filter(|one| one.recipe == Some(recipe)) {
        let Did::Hold(what) = &record.did else {
            continue;
        };
        let (token, end) = match *what {
            What::Granted { token, .. } => {
                open.insert((record.who, token), bars.len());
                bars.push(Bar {
                    who: record.who,
                    token,
                    from: record.at,
                    to: last,
                    end: TimelineEnd::Release,
                });
                continue;
            }
            What::Releasing { token } => (token, TimelineEnd::Release),
            What::Lost { token } => (token, TimelineEnd::Loss),
            What::Dropping { token } => (token, TimelineEnd::Drop),
            _ => continue,
        };
        if let Some(index) = open.remove(&(record.who, token)) {
            bars[index].to = record.at;
            bars[index].end = end;
        }
    }
    bars
}

/// When which process was stopped.
fn pauses(records: &[Record], last: Moment) -> Vec<(usize, Moment, Moment)> {
    let mut pauses = Vec::new();
    let mut open: BTreeMap<usize, Moment> = BTreeMap::new();
    for record in records.iter().filter(|record| record.recipe.is_none()) {
        match record.did {
            Did::Hold(What::Paused) => {
                open.entry(record.who).or_insert(record.at);
            }
            Did::Hold(What::Resumed) => {
                if let Some(from) = open.remove(&record.who) {
                    pauses.push((record.who, from, record.at));
                }
            }
            _ => {}
        }
    }
    pauses.extend(open.into_iter().map(|(who, from)| (who, from, last)));
    pauses
}
