//! The report as a page: verdict, figures and timelines.

use std::collections::BTreeSet;

use super::Outcome;
use super::timeline::Timelines;
use crate::recipe::Recipe;
use crate::record::Record;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:1240px;color:#222;background:#fff}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}\
td:first-child,th:first-child{text-align:left}pre{background:#f6f6f6;padding:1em;overflow:auto}\
.right{color:#0a6b2d}.wrong{color:#b00020}svg{display:block;margin:.5em 0 1.5em}";

/// The whole page, which needs no other file.
pub(super) fn render(outcome: &Outcome, records: &[Record]) -> String {
    let figures = &outcome.figures;
    let mut page = String::new();
    let (class, verdict) = match outcome.is_right() {
        true => ("right", "every guarantee was kept"),
        false => ("wrong", "a guarantee was broken"),
    };
    let seeds = match (figures.seeds.first(), figures.seeds.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(seed), _) => seed.to_string(),
        _ => String::new(),
    };
    let mut add = |text: String| page.push_str(&text);
    add(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>bellwether torture</title><style>{STYLE}</style>\
         <h1>bellwether torture: <span class=\"{class}\">{verdict}</span></h1>\
         <p>{:.0} s of faults, {} records, seeds {seeds}.</p>",
        figures.faults_seconds, figures.records
    ));
    for (recipe, what) in &outcome.violations {
        add(format!(
            "<h2 class=\"wrong\">{recipe}</h2><pre>{}</pre>",
            escape(what)
        ));
    }
    add(
        "<h2>Recipes</h2><table><tr><th>recipe<th>successes<th>failures<th>lost<th>dropped or killed<th>longest gap</tr>"
            .into(),
    );
    for (recipe, counts) in &figures.recipes {
        add(format!(
            "<tr><td>{recipe}<td>{}<td>{}<td>{}<td>{}<td>{} ms</tr>",
            counts.successes, counts.failures, counts.lost, counts.dropped, counts.longest_gap_ms
        ));
    }
    add("</table><h2>Faults</h2><table>".into());
    for (fault, count) in &figures.faults {
        add(format!("<tr><td>{}<td>{count}</tr>", escape(fault)));
    }
    add(
        "</table><h2>Timelines of the last round</h2><p>One row a worker. Blue: a hold; red: a hold that ended by a loss, a \
         drop or a kill. Grey: the process was stopped. Vertical lines: other faults, with their names on hover, violet for those of servers.</p>"
            .into(),
    );
    if let Some(timelines) = Timelines::new(records) {
        add(timelines.shared());
        let held: BTreeSet<Recipe> = records.iter().filter_map(|record| record.recipe).collect();
        for recipe in held {
            if let Some(svg) = timelines.render(recipe) {
                add(format!("<h3>{recipe}</h3>{svg}"));
            }
        }
    }
    page
}

/// Text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
