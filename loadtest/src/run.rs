//! Runs scenarios: every variant in turn, round after round, with the floor measured in each round.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Failure;
use crate::client::{RELOADS, metric};
use crate::floor::{Floor, Floors};
use crate::live::Live;
use crate::plan::in_miniature;
use crate::process::weir;
use crate::report;
use crate::result::{Measured, Outcome, Round};
use crate::scenario::{Clock, Event, Group, Scenario, Variant, What};
use crate::servers::Servers;
use crate::tally::{Figures, Tally};
use crate::virtual_time;

/// How often the progress is shown.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Requests of a measurement of the floor, and in miniature.
const FLOOR_REQUESTS: u64 = 20_000;
const FEW_FLOOR_REQUESTS: u64 = 500;
/// The window where the limits do not say another, s.
const DEFAULT_WINDOW: f64 = 60.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of scenarios (see `loadtest list`), or files of your own.
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// The service to ask, as in http://127.0.0.1:8080, instead of one that is started: the first variant runs, with that service's limits.
    #[arg(long)]
    url: Option<String>,
    /// The weir to start, instead of this repository's.
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// How often the variants are run in turn, instead of what the scenario says.
    #[arg(long)]
    rounds: Option<u32>,
    /// The most seconds of each variant, instead of what the scenario says.
    #[arg(long)]
    seconds: Option<f64>,
    /// Only this variant.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Everything in a moment, to see that a scenario works: measures nothing.
    #[arg(long)]
    miniature: bool,
    /// Write the results as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots: one HTML file that needs no other.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Fail when something that the scenario hopes for is not reached.
    #[arg(long)]
    strict: bool,
}

/// The scenarios that come with the repository, by name.
pub(crate) fn list() -> Result<Vec<Scenario>, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    paths.iter().map(|path| Scenario::read(path)).collect()
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let scenarios = args.scenarios.iter().map(|name| prepare(args, name)).collect::<Result<Vec<_>, _>>()?;
    let url = args.url.as_deref().map(address).transpose()?;
    let weir = if url.is_none() { weir(args.weir.as_deref())? } else { String::new() };
    let mut outcomes = Vec::with_capacity(scenarios.len());
    for scenario in scenarios {
        let rounds = crate::block_on(all_rounds(args, &scenario, &weir, url))?;
        let outcome = Outcome::new(&scenario, &rounds);
        println!("{}", report::table(&outcome));
        outcomes.push(outcome);
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&outcomes)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &args.html {
        std::fs::write(path, report::html(&outcomes)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let missed = outcomes.iter().flat_map(|outcome| &outcome.expectations).filter(|expectation| !expectation.reached).count();
    if args.strict && missed > 0 { Err(format!("{missed} of what was hoped for was not reached").into()) } else { Ok(()) }
}

fn prepare(args: &Args, name: &str) -> Result<Scenario, Failure> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.yaml"));
    let mut scenario = Scenario::read(if shipped.exists() { &shipped } else { Path::new(name) })?;
    scenario.rounds = args.rounds.unwrap_or(scenario.rounds).clamp(1, 50);
    scenario.seconds = args.seconds.unwrap_or(scenario.seconds).clamp(0.1, 86_400.0);
    if let Some(only) = &args.variant {
        scenario.variants.retain(|variant| variant.name == *only);
    }
    if args.url.is_some() {
        scenario.variants.truncate(1);
        if scenario.variants.iter().any(|variant| !variant.events.is_empty() || variant.clock == Clock::Virtual) {
            return Err(format!("{}: needs servers of its own, so it cannot be run against a URL", scenario.name).into());
        }
    }
    if scenario.variants.is_empty() {
        return Err(format!("{}: there is no such variant", scenario.name).into());
    }
    // What is hoped for of others was not asked for.
    let Scenario { variants, expect, .. } = &mut scenario;
    let runs = |name: &String| variants.iter().any(|variant| variant.name == *name);
    expect.retain(|expect| runs(&expect.variant) && expect.against.as_ref().is_none_or(runs));
    if args.miniature {
        in_miniature(&mut scenario);
    }
    Ok(scenario)
}

fn address(url: &str) -> Result<SocketAddr, Failure> {
    let host = url.strip_prefix("http://").ok_or("the URL must be http://HOST:PORT; put TLS in front of it elsewhere")?;
    let mut found = host.trim_end_matches('/').to_socket_addrs().map_err(|error| format!("{url}: {error}"))?;
    Ok(found.next().ok_or_else(|| format!("{url}: no address"))?)
}

async fn all_rounds(args: &Args, scenario: &Scenario, weir: &str, url: Option<SocketAddr>) -> Result<Vec<Round>, Failure> {
    let virtual_only = scenario.variants.iter().all(|variant| variant.clock == Clock::Virtual);
    let floors = if virtual_only { None } else { Some(Floors::start()?) };
    let requests = if args.miniature { FEW_FLOOR_REQUESTS } else { FLOOR_REQUESTS };
    let mut rounds = Vec::new();
    for round in 0..scenario.rounds {
        let floor = match &floors {
            Some(floors) => Some(floors.measure(requests, 10_000, 64).await?),
            None => None,
        };
        for variant in &scenario.variants {
            let bar = bar(scenario, variant, round);
            let measured = match variant.clock {
                Clock::Virtual => virtually(scenario, variant),
                Clock::Real => really(scenario, variant, weir, url, floor, &bar).await,
            };
            bar.finish_and_clear();
            rounds.push(Round { variant: variant.name.clone(), groups: measured.map_err(|error| format!("{}: {error}", variant.name))? });
        }
    }
    Ok(rounds)
}

fn bar(scenario: &Scenario, variant: &Variant, round: u32) -> ProgressBar {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a checked number of seconds")]
    let bar = ProgressBar::new((scenario.seconds * 10.0) as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {elapsed} {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(format!("{} {}/{} {}", scenario.name, round + 1, scenario.rounds, variant.name));
    bar.tick();
    bar
}

fn virtually(scenario: &Scenario, variant: &Variant) -> Result<Vec<Measured>, Failure> {
    Ok(measured(scenario, variant, &virtual_time::run(scenario, variant)?, scenario.seconds, &Figures::new()))
}

async fn really(
    scenario: &Scenario,
    variant: &Variant,
    weir: &str,
    url: Option<SocketAddr>,
    floor: Option<Floor>,
    bar: &ProgressBar,
) -> Result<Vec<Measured>, Failure> {
    let servers = Servers::start(scenario, variant, weir, url)?;
    let live = Live::begin(scenario, variant, servers.address).await?;
    let before = servers.used()?;
    let began = Instant::now();
    let run = live.run();
    let beside = watch(&servers, variant, &live, bar);
    tokio::select! {
        done = run => done?,
        failed = beside => failed?,
    }
    let took = began.elapsed().as_secs_f64();
    let mut costs = Figures::new();
    servers.figures(&before, live.progress().1, &mut costs)?;
    if variant.events.iter().any(|event| event.what == What::SaveLimits) {
        costs.insert("reloads".to_owned(), metric(servers.address, RELOADS).await?);
    }
    if let Some(floor) = floor {
        against(floor, live.progress().1 as f64 / took, &mut costs);
    }
    Ok(measured(scenario, variant, &live.tallies(), took, &costs))
}

/// Makes happen what is to happen, and shows how far it is, until something fails.
async fn watch(servers: &Servers, variant: &Variant, live: &Live, bar: &ProgressBar) -> Result<(), Failure> {
    let mut events: Vec<&Event> = variant.events.iter().collect();
    events.sort_by(|one, other| one.at_seconds.total_cmp(&other.at_seconds));
    let mut number = 0;
    loop {
        let (seconds, exchanges) = live.progress();
        while let Some(event) = events.get(number).filter(|event| event.at_seconds <= seconds) {
            number += 1;
            servers.make(event.what, number)?;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few seconds")]
        bar.set_position((seconds * 10.0) as u64);
        bar.set_message(format!("{exchanges} answers"));
        let next = events.get(number).map_or(LOOK_EVERY, |event| Duration::from_secs_f64((event.at_seconds - seconds).max(0.0)));
        tokio::time::sleep(next.min(LOOK_EVERY)).await;
    }
}

/// The costs as ratios to the floor of the same round.
fn against(floor: Floor, per_second: f64, figures: &mut Figures) {
    let ratios = [
        ("server_cpu_x_bare", figures.get("server_cpu_us").map(|us| us / floor.server_us)),
        ("redis_cpu_x_plain", figures.get("redis_cpu_us").map(|us| us / floor.redis_us)),
        ("answers_x_bare", Some(per_second / floor.per_second)),
        ("floor_server_us", Some(floor.server_us)),
        ("floor_redis_us", Some(floor.redis_us)),
        ("floor_per_second", Some(floor.per_second)),
        ("floor_p99_ms", Some(floor.p99_ms)),
    ];
    // A floor that was too short to be measured is none.
    figures.extend(ratios.into_iter().filter_map(|(name, ratio)| Some((name.to_owned(), ratio.filter(|ratio| ratio.is_finite())?))));
}

/// Every group, those that are counted together, and all.
fn measured(scenario: &Scenario, variant: &Variant, groups: &[(Group, Tally)], took: f64, costs: &Figures) -> Vec<Measured> {
    let limits = scenario.limits(variant);
    let window = limits.pointer("/defaults/window_seconds").and_then(serde_json::Value::as_f64).unwrap_or(DEFAULT_WINDOW);
    let mut named: Vec<(String, Tally)> = Vec::new();
    let mut count = |name: &str, tally: &Tally| match named.iter_mut().find(|(other, _)| other == name) {
        Some((_, sum)) => sum.merge(tally),
        None => named.push((name.to_owned(), tally.clone())),
    };
    for (group, tally) in groups {
        count(&group.name, tally);
    }
    for (group, tally) in groups {
        group.counted_with.iter().for_each(|name| count(name, tally));
        count("all", tally);
    }
    let figures_of = |name: &str, tally: &Tally| {
        let mut figures = tally.figures(took, window);
        if name == "all" {
            figures.extend(costs.clone());
        }
        figures
    };
    named.iter().map(|(name, tally)| Measured::new(name, figures_of(name, tally), tally)).collect()
}
