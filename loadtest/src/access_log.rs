//! A made-up access log: crawlers, ordinary visitors, and a storm, from the address ranges kept for documentation.
//!
//! The same seed gives the same bytes. Lines are nearly in order, as nginx writes them: each stands where its request was
//! completed, and some were flushed a moment later.

use std::io::{self, BufWriter, Write};

use fastrand::Rng;

/// 1 January 2026, 00:00 UTC, in seconds.
const START: i64 = 1_767_225_600;
/// On average so many lines a second.
const LINES_PER_SECOND: i64 = 20;
/// How late a line may be written, s.
const MOST_LATE: i64 = 2;
/// The storm lasts for this part of all lines, in the middle.
const STORM: std::ops::Range<u64> = 450..550;

struct Crawler {
    address: &'static str,
    agent: &'static str,
    /// Its share of all lines, in thousandths.
    weight: u64,
}

const CRAWLERS: [Crawler; 5] = [
    Crawler { address: "192.0.2.10", agent: "Mozilla/5.0 (compatible; ExampleBot/2.1; +https://example.com/bot)", weight: 150 },
    Crawler { address: "198.51.100.20", agent: "ArchiveCrawler/1.4 (+https://archive.example.org)", weight: 100 },
    Crawler { address: "203.0.113.30", agent: "PriceSpider/0.9", weight: 80 },
    Crawler { address: "2001:db8:bee::40", agent: "IndexerBot/3.0 (\\\"polite\\\"; +https://index.example.net)", weight: 60 },
    Crawler { address: "198.51.100.50", agent: "Scrapy/2.13 (+https://scrapy.example)", weight: 50 },
];

/// Who takes part in the storm.
const STORMER: (&str, &str) = ("203.0.113.99", "HungryFetcher/0.1");

const PATHS: [&str; 6] = ["/", "/articles?page=2", "/api/v1/items", "/search?q=caf%C3%A9", "/static/app.js", "/feed.xml"];
const BROWSERS: [&str; 3] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Safari/605.1.15",
    "-",
];

/// What to make.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How many lines.
    #[arg(long, default_value_t = 20_000)]
    pub lines: u64,
    /// The same seed gives the same log.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
}

/// Writes it to stdout.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(args: &Args) -> io::Result<()> {
    write(&mut BufWriter::new(io::stdout().lock()), args)
}

/// Writes it to `out`.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(out: &mut impl Write, args: &Args) -> io::Result<()> {
    let mut rng = Rng::with_seed(args.seed);
    let mut second = START;
    // A burst is a visitor whose page asks for many things at once.
    let mut burst: Option<(Visitor, u64)> = None;
    for index in 0..args.lines {
        if rng.i64(0..LINES_PER_SECOND) == 0 {
            second += 1;
        }
        let storm = STORM.contains(&(u128::from(index) * 1_000 / u128::from(args.lines)).try_into().unwrap_or(0)) && rng.u8(0..10) < 8;
        let visitor = match burst.take() {
            _ if storm => Visitor { address: STORMER.0.to_owned(), user: "-".to_owned(), agent: STORMER.1 },
            Some((visitor, left)) => {
                burst = (left > 1).then(|| (visitor.clone(), left - 1));
                visitor
            }
            None => {
                let visitor = Visitor::any(&mut rng);
                burst = (rng.u8(0..100) == 0).then(|| (visitor.clone(), 30));
                visitor
            }
        };
        let late = if rng.u8(0..20) == 0 { rng.i64(0..=MOST_LATE) } else { 0 };
        line(out, &mut rng, &visitor, second - late)?;
    }
    out.flush()
}

#[derive(Clone)]
struct Visitor {
    address: String,
    user: String,
    agent: &'static str,
}

impl Visitor {
    fn any(rng: &mut Rng) -> Self {
        let mut share = rng.u64(0..1_000);
        for crawler in &CRAWLERS {
            if share < crawler.weight {
                return Self { address: crawler.address.to_owned(), user: "-".to_owned(), agent: crawler.agent };
            }
            share -= crawler.weight;
        }
        let address = match rng.u8(0..4) {
            0 => format!("192.0.2.{}", rng.u8(100..)),
            1 => format!("198.51.100.{}", rng.u8(100..)),
            2 => format!("203.0.113.{}", rng.u8(100..)),
            _ => format!("2001:db8:{:x}::{:x}", rng.u16(0x1000..0x1100), rng.u16(1..)),
        };
        let user = if rng.u8(0..5) == 0 { format!("user{}", rng.u8(1..40)) } else { "-".to_owned() };
        Self { address, user, agent: BROWSERS[rng.usize(0..BROWSERS.len())] }
    }
}

fn line(out: &mut impl Write, rng: &mut Rng, visitor: &Visitor, second: i64) -> io::Result<()> {
    let time = jiff::Timestamp::from_second(second).map_err(io::Error::other)?.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
    // Now and then somebody speaks TLS to the plain port, or nothing at all.
    let (request, status) = match rng.u16(0..500) {
        0 => (r"\x16\x03\x01\x02\x00\x01\x00\x01".to_owned(), 400),
        1 => ("-".to_owned(), 408),
        _ => (format!("GET {} HTTP/1.1", PATHS[rng.usize(0..PATHS.len())]), 200),
    };
    writeln!(out, r#"{} - {} [{time}] "{request}" {status} {} "-" "{}""#, visitor.address, visitor.user, rng.u32(0..50_000), visitor.agent)
}
