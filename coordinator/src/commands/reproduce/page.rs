//! A page of findings, in Markdown.

use super::plot::Plot;

/// What the paper says of itself, as far as it could be had.
const PAPER: &str = "Known of BlockTrain, from its abstract alone (its tables were not to be had): sigma [1, 10], four \
    blocks, byte-level WikiText: cross-entropy 1.359 against 1.32 end to end; six workers on shared blocks: 1.385; over \
    HTTP: 1.576 with 10.23 GB at full participation; three public hosts: 5.580 to 1.811 with 15.22 GB; \"a high minimum \
    sigma is required\". The numbers above are of another corpus and a far smaller scale: only orders can be compared.";

pub(super) struct Page {
    pub title: String,
    pub command: String,
    pub minutes: f64,
    pub setting: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub expected: String,
    /// One sentence each.
    pub seen: Vec<String>,
    pub plot: Plot,
}

impl Page {
    pub(super) fn new(title: &str, setting: String, header: &[&str], plot: Plot) -> Page {
        Page {
            title: title.into(),
            command: String::new(),
            minutes: 0.0,
            setting,
            header: header.iter().map(|cell| (*cell).to_owned()).collect(),
            rows: vec![],
            expected: String::new(),
            seen: vec![],
            plot,
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut table = row(&self.header);
        table += &format!("|{}\n", "---|".repeat(self.header.len()));
        self.rows.iter().for_each(|cells| table += &row(cells));
        format!(
            "# {}\n\n```sh\n{}\n```\n\n{} It took {:.1} minutes.\n\n{table}\n![{}]({name}.svg)\n\n**Expected.** {}\n\n\
             **Seen.** {}\n\n{PAPER}\n",
            self.title,
            self.command,
            self.setting,
            self.minutes,
            self.title,
            self.expected,
            self.seen.join(" "),
        )
    }
}

/// "holds" or "does not hold".
pub(super) fn holds(it: bool) -> &'static str {
    if it { "holds" } else { "does not hold" }
}
