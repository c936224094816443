//! A Markdown document as what can be run in it: its fenced blocks, and what comments before them say about running them.
//!
//! `sh`: commands that must succeed. `console`: commands behind `$ ` with what they print below; `...` stands for anything, a line of
//! it for any lines. `yaml`: a limit file that must be right. Comments that a reader does not see, each on a line of its own before a
//! block:
//!
//! - `<!-- not run: WHY -->`
//! - `<!-- first: COMMAND -->`, which the test runs before the block
//! - `<!-- by and by -->`: what is printed becomes right in a while
//! - `<!-- in the test: WRITTEN is MEANT -->`, from here to the end of the document

#[derive(Debug)]
pub struct Document {
    pub name: String,
    pub text: String,
    pub blocks: Vec<Block>,
}

#[derive(Debug, Default)]
pub struct Block {
    /// Of the opening fence, from 1.
    pub line: usize,
    pub language: String,
    pub text: String,
    pub not_run: Option<String>,
    pub first: Vec<String>,
    pub by_and_by: bool,
    pub stand_ins: Vec<(String, String)>,
}

impl Document {
    pub fn new(name: &str, text: &str) -> Self {
        let mut blocks = Vec::new();
        let mut next = Block::default();
        let mut open: Option<Block> = None;
        for (index, line) in text.lines().enumerate() {
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (Some(_), Some("")) => blocks.extend(open.take()),
                (Some(block), _) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, Some(language)) => {
                    open = Some(Block { line: index + 1, language: language.trim().to_owned(), ..std::mem::take(&mut next) });
                }
                (None, None) => next.heed(line),
            }
        }
        assert!(open.is_none(), "{name}: a block does not end");
        Self { name: name.to_owned(), text: text.to_owned(), blocks }
    }
}

impl Block {
    /// Takes in a line that stands before the block.
    fn heed(&mut self, line: &str) {
        let comment = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let Some(comment) = comment else {
            // What was said is about the next block, unless there is text in between; what is to be run first, and what stands for
            // what, holds all the same.
            if !line.trim().is_empty() {
                self.not_run = None;
                self.by_and_by = false;
            }
            return;
        };
        if let Some(why) = comment.strip_prefix("not run: ") {
            self.not_run = Some(why.to_owned());
        } else if let Some(command) = comment.strip_prefix("first: ") {
            self.first.push(command.to_owned());
        } else if let Some((written, meant)) = comment.strip_prefix("in the test: ").and_then(|stands| stands.split_once(" is ")) {
            self.stand_ins.push((written.to_owned(), meant.to_owned()));
        } else if comment == "by and by" {
            self.by_and_by = true;
        }
    }

    /// Of a `console` block: each command with what is shown of its output, if anything is.
    pub fn commands(&self) -> Vec<(String, Option<String>)> {
        let mut commands: Vec<(String, Option<String>)> = Vec::new();
        for line in self.text.lines() {
            let goes_on = commands.last().is_some_and(|(command, output)| output.is_none() && command.ends_with('\\'));
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (_, Some((command, _))) if goes_on => {
                    command.push('\n');
                    command.push_str(line);
                }
                (Some(command), _) => commands.push((command.to_owned(), None)),
                (None, Some((_, Some(output)))) => {
                    output.push('\n');
                    output.push_str(line);
                }
                (None, Some((_, output))) => *output = Some(line.to_owned()),
                (None, None) => panic!("line {}: output before any command", self.line),
            }
        }
        commands
    }
}

/// Whether what was printed is what was expected, where `...` stands for anything.
pub fn matches(expected: &str, printed: &str) -> bool {
    // Behind a line of its own it stands for any lines, none too.
    let expected = expected.replace("\n...\n", "\n\u{0}").replace("\n...", "\u{0}");
    let expected = expected.strip_prefix("...\n").map_or(expected.clone(), |rest| format!("\u{0}{rest}"));
    let parts: Vec<&str> = expected.split("...").flat_map(|part| part.split('\u{0}')).collect();
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return false };
    if parts.len() == 1 {
        return expected == printed;
    }
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    for part in &parts[1..parts.len() - 1] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
