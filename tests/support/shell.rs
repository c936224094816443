//! A shell for what documents and help texts let a reader type: bash, in a folder of its own with the project's `config` and `deploy`
//! in it, this build's programs first on its path, and free ports in place of those that are written.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than any command here should take, a build of the load tests among them.
const PATIENCE: Duration = Duration::from_secs(300);
/// What is printed behind the output of a command, before its exit code.
const END: &str = "--end-of-the-command--";
/// Ports that are written in documents; everybody's services have them, so a session has its own.
const PORTS: [&str; 4] = ["8080", "8081", "8082", "6379"];

const PROJECT: &str = env!("CARGO_MANIFEST_DIR");

pub struct Shell {
    bash: Child,
    input: ChildStdin,
    output: Receiver<String>,
    ports: BTreeMap<&'static str, u16>,
    /// What else stands for something else here.
    stand_ins: Vec<(String, String)>,
    folder: tempfile::TempDir,
}

impl Shell {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (session, home) = (folder.path().join("session"), folder.path().join("home"));
        fs::create_dir_all(&session).unwrap();
        for below in ["config", "deploy"] {
            copy(&Path::new(PROJECT).join(below), &home.join(below));
        }
        // curl tells its progress only where nobody watches a terminal; a reader does.
        fs::write(session.join(".curlrc"), "no-progress-meter").unwrap();
        let ports = BTreeMap::from(PORTS.map(|port| (port, free_port())));
        let scripts = format!("{PROJECT}/tests/support/shell");
        let mut bash = Command::new("bash")
            .current_dir(&home)
            .arg("-c")
            .arg(r#"PATH="$SCRIPTS:$PATH"; while read -r; do . "$SESSION/command"; done"#)
            .env("CURL_HOME", &session)
            .envs([("SESSION", session.to_str().unwrap()), ("PROJECT", PROJECT), ("SCRIPTS", &scripts)])
            .envs([("WEIR", env!("CARGO_BIN_EXE_weir")), ("CARGO", env!("CARGO"))])
            .env("WEIR_BIND", format!("127.0.0.1:{}", ports["8080"]))
            .env("WEIR_URL", format!("http://127.0.0.1:{}", ports["8080"]))
            .envs([("NO_COLOR", "1"), ("LC_ALL", "C.UTF-8"), ("http_proxy", ""), ("no_proxy", "*")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A group of its own, so that everything it leaves in the background ends with it.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("these tests need bash on the PATH: {error}"));
        let (tell, output) = channel();
        let stdout = BufReader::new(bash.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let input = bash.stdin.take().unwrap();
        Self { bash, input, output, ports, stand_ins: Vec::new(), folder }
    }

    /// From now on `written` means `meant`.
    pub fn stand_in(&mut self, written: &str, meant: &str) {
        self.stand_ins.push((written.to_owned(), meant.to_owned()));
    }

    /// A file in the folder that the session is in.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join("home").join(name), content).unwrap();
    }

    /// The text with this session's ports and stand-ins.
    pub fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (port, own) in &self.ports {
            for before in [":", "--port ", "-p "] {
                text = text.replace(&format!("{before}{port}"), &format!("{before}{own}"));
            }
        }
        self.stand_ins.iter().fold(text, |text, (written, meant)| text.replace(written, meant))
    }

    /// Runs commands; 0 if each succeeded, else the exit code of the last that did not, and everything that was printed.
    pub fn run(&mut self, commands: &str) -> (i32, String) {
        let commands = self.here(commands);
        let script = format!(
            "failed=0; trap 'failed=$?' ERR\n{{\n{commands}\n}} 2>&1 </dev/null\ntrap - ERR\nprintf '\\n%s %s\\n' {END} \"$failed\"\n"
        );
        fs::write(self.folder.path().join("session/command"), script).unwrap();
        self.input.write_all(b"\n").unwrap();
        let mut printed = Vec::new();
        loop {
            let line = self.output.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{error}: {commands}\nso far: {printed:#?}"));
            if let Some(code) = line.strip_prefix(END) {
                // The line that the end mark began with.
                if printed.last().is_some_and(String::is_empty) {
                    printed.pop();
                }
                return (code.trim().parse().unwrap(), printed.join("\n"));
            }
            printed.push(line.trim_end().to_owned());
        }
    }
}

impl Default for Shell {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "KILL", "--", &format!("-{}", self.bash.id())]).stderr(Stdio::null()).status();
        let _ = self.bash.wait();
    }
}

/// A port below those that systems hand out by themselves: whoever asks the system for one gets none of these.
fn free_port() -> u16 {
    loop {
        let port = rand::random_range(20_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
