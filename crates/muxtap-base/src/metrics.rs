//! Metrics, and their Prometheus form. Pane contents never appear in a metric.

use std::{sync::LazyLock, time::Duration};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use muxtap_core::GapReason;

macro_rules! metric {
    ($(#[doc = $doc:literal] $name:ident: $kind:ty = $make:ident!($key:literal);)*) => {$(
        #[doc = $doc]
        pub static $name: LazyLock<$kind> = LazyLock::new(|| $make!($key));
    )*
        #[cfg(feature = "exporter")]
        fn describe() {
            $(metric!(@describe $make $key $doc);)*
        }
    };
    (@describe counter $key:literal $doc:literal) => { metrics::describe_counter!($key, $doc) };
    (@describe gauge $key:literal $doc:literal) => { metrics::describe_gauge!($key, $doc) };
    (@describe histogram $key:literal $doc:literal) => { metrics::describe_histogram!($key, $doc) };
}

metric! {
    #[doc = "Command lines sent to tmux over open connections."]
    TMUX_COMMANDS: Counter = counter!("muxtap_tmux_commands_total");
    #[doc = "Processes started (tmux clients and one-shot calls)."]
    PROCESS_SPAWNS: Counter = counter!("muxtap_process_spawns_total");
    #[doc = "Bytes of pane output received, decoded."]
    OUTPUT_BYTES: Counter = counter!("muxtap_output_bytes_total");
    #[doc = "Lines from tmux that are not known notifications, and stray text."]
    LINES_UNKNOWN: Counter = counter!("muxtap_lines_unknown_total");
    #[doc = "Times that the output of a flooding pane was held."]
    FLOODS: Counter = counter!("muxtap_floods_held_total");
    #[doc = "Trusted screens that differed from tmux's when they were compared."]
    SCREEN_DIFFERENCES: Counter = counter!("muxtap_screen_differences_total");
    #[doc = "Open waits."]
    WAITS_ACTIVE: Gauge = gauge!("muxtap_waits_active");
    #[doc = "Seconds from the arrival of the deciding output to the response of its wait."]
    WAIT_LATENCY: Histogram = histogram!("muxtap_wait_latency_seconds");
    #[doc = "Panes whose output is followed."]
    PANES: Gauge = gauge!("muxtap_panes");
    #[doc = "Bytes held for all panes: output and screens."]
    RING_BYTES: Gauge = gauge!("muxtap_ring_bytes");
    #[doc = "Entries of the audit log that could not be written."]
    AUDIT_LOST: Counter = counter!("muxtap_audit_lost_total");
    #[doc = "Refused actions that the audit log counts without recording each one."]
    AUDIT_OMITTED: Counter = counter!("muxtap_audit_omitted_total");
    #[doc = "Open event streams: Server-Sent Events and WebSocket connections."]
    STREAMS: Gauge = gauge!("muxtap_streams");
    #[doc = "Attached control clients."]
    CLIENTS: Gauge = gauge!("muxtap_control_clients");
}

/// Counts a gap by its reason.
pub fn gap(reason: GapReason) {
    counter!("muxtap_gaps_total", "reason" => reason.as_str()).increment(1);
}

/// Counts a request over TCP that was rejected before it was parsed, by the reason.
pub fn refused(reason: &'static str) {
    counter!("muxtap_http_refused_total", "reason" => reason).increment(1);
}

/// Counts a screen that must be compared with tmux's, by its reason.
pub fn screen_doubt(reason: &'static str) {
    counter!("muxtap_screen_doubts_total", "reason" => reason).increment(1);
}

/// Counts a mark that a shell or program printed, by its kind (`osc-133`, `progress` …).
pub fn mark(kind: &'static str) {
    counter!("muxtap_marks_total", "kind" => kind).increment(1);
}

/// Counts a capture by its source.
pub fn capture(source: &'static str) {
    counter!("muxtap_captures_total", "source" => source).increment(1);
}

/// Records the time from the deciding output of a wait to its response.
pub fn wait_latency(latency: Duration) {
    record(&WAIT_LATENCY, latency);
}

/// Records the time from a tmux command to its reply. Of commands sent together, the first gives its
/// name.
pub fn tmux_command(name: &'static str, took: Duration) {
    record(&histogram!("muxtap_tmux_command_seconds", "command" => name), took);
}

/// Records the time from an HTTP request to the begin of its response. `route` is the path's pattern,
/// never the path: it bounds the number of series, and a path may name a pane.
pub fn http_request(method: &'static str, route: String, status: u16, took: Duration) {
    let class = match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    };
    let histogram = histogram!("muxtap_http_request_seconds", "method" => method, "route" => route, "status" => class);
    record(&histogram, took);
}

fn record(histogram: &Histogram, took: Duration) {
    histogram.record(took.as_secs_f64());
    #[cfg(feature = "exporter")]
    exporter::count_samples();
}

/// An attached control client: it is counted until this is dropped.
#[derive(Debug)]
pub struct AttachedClient(());

impl AttachedClient {
    /// Counts one more client.
    pub fn count() -> Self {
        CLIENTS.increment(1.0);
        Self(())
    }
}

impl Drop for AttachedClient {
    fn drop(&mut self) {
        CLIENTS.decrement(1.0);
    }
}

/// Sets the number of bytes held for all panes.
#[allow(clippy::cast_precision_loss, reason = "a gauge is a float; nobody has 2^53 bytes")]
pub fn held_bytes(total: usize) {
    RING_BYTES.set(total as f64);
}

#[cfg(feature = "exporter")]
pub use exporter::{install, render};

/// Returns nothing: this build has no recorder.
#[cfg(not(feature = "exporter"))]
pub fn render() -> String {
    String::new()
}

/// The recorder.
#[cfg(feature = "exporter")]
mod exporter {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    };

    use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge};
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
    use muxtap_core::GapReason;

    use super::{
        CLIENTS, FLOODS, LINES_UNKNOWN, OUTPUT_BYTES, PROCESS_SPAWNS, SCREEN_DIFFERENCES, STREAMS, TMUX_COMMANDS,
        WAITS_ACTIVE, describe,
    };

    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

    /// The number of histogram samples that are held individually before they are counted into
    /// buckets. The exporter by itself counts them only at a scrape.
    const SAMPLES: u32 = 1024;

    /// Counts the held samples into buckets, if there are many.
    pub(super) fn count_samples() {
        static TAKEN: AtomicU32 = AtomicU32::new(0);
        if TAKEN.fetch_add(1, Ordering::Relaxed) % SAMPLES == SAMPLES - 1
            && let Some(handle) = HANDLE.get()
        {
            handle.run_upkeep();
        }
    }

    /// The upper ends of the buckets of all histograms, in seconds. A reply takes microseconds; a
    /// request to wait takes as long as its wait.
    const BUCKETS: [f64; 16] = [
        0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0,
    ];

    /// Starts counting. Before this call, and in programs without it, every metric is a no-op.
    pub fn install() {
        let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).map(PrometheusBuilder::build_recorder);
        if let Ok(recorder) = recorder
            && HANDLE.set(recorder.handle()).is_ok()
            && metrics::set_global_recorder(recorder).is_ok()
        {
            describe();
            describe_labeled();
            for metric in [&TMUX_COMMANDS, &PROCESS_SPAWNS, &OUTPUT_BYTES, &LINES_UNKNOWN, &FLOODS, &SCREEN_DIFFERENCES]
            {
                metric.increment(0);
            }
            WAITS_ACTIVE.set(0.0);
            CLIENTS.set(0.0);
            STREAMS.set(0.0);
            gauge!("muxtap_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            for reason in GapReason::ALL {
                counter!("muxtap_gaps_total", "reason" => reason.as_str()).increment(0);
            }
        }
    }

    /// Describes the metrics that have labels.
    fn describe_labeled() {
        describe_gauge!("muxtap_build_info", "1; the version is a label.");
        describe_counter!("muxtap_gaps_total", "Gaps in the streams of panes, by their reason.");
        describe_counter!(
            "muxtap_http_refused_total",
            "Requests over TCP rejected before they were parsed, by the reason."
        );
        describe_counter!("muxtap_screen_doubts_total", "Screens that had to be compared with tmux's, by the reason.");
        describe_counter!("muxtap_marks_total", "Marks that shells and programs printed, by their kind.");
        describe_counter!("muxtap_captures_total", "Captures, by their source.");
        describe_histogram!("muxtap_tmux_command_seconds", "Seconds from a tmux command to its reply, by the command.");
        describe_histogram!(
            "muxtap_http_request_seconds",
            "Seconds from an HTTP request to the begin of its response, by method, route and class of status."
        );
    }

    /// Returns the Prometheus text exposition of everything counted so far.
    pub fn render() -> String {
        let Some(handle) = HANDLE.get() else { return String::new() };
        handle.run_upkeep();
        let mut text = handle.render();
        process::append(&mut text);
        text
    }

    /// The metrics of the process that every Prometheus client library has, by their usual names.
    /// Only on Linux.
    mod process {
        use std::{fmt::Write as _, fs};

        use rustix::{
            param::{clock_ticks_per_second, page_size},
            process::{Resource, getrlimit},
        };

        /// Appends the process's state from `/proc`. What cannot be read is left out.
        pub(super) fn append(text: &mut String) {
            let mut add = |name: &str, kind: &str, help: &str, value: f64| {
                // Writing to a string cannot fail.
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n");
            };
            if let Some(stat) = Stat::read() {
                add("process_cpu_seconds_total", "counter", "CPU time of the process.", seconds(stat.cpu));
                let resident = float(stat.resident_pages * page_size() as u64);
                add("process_resident_memory_bytes", "gauge", "Memory of the process that is in RAM.", resident);
                let virtual_bytes = float(stat.virtual_bytes);
                add("process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", virtual_bytes);
                add("process_threads", "gauge", "Threads of the process.", float(stat.threads));
                if let Some(booted) = booted() {
                    let begun = float(booted) + seconds(stat.begun);
                    add("process_start_time_seconds", "gauge", "Begin of the process, in seconds since 1970.", begun);
                }
            }
            if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
                // One of them reads the folder.
                let open = float((descriptors.count() as u64).saturating_sub(1));
                add("process_open_fds", "gauge", "Open file descriptors.", open);
            }
            if let Some(most) = getrlimit(Resource::Nofile).current {
                add("process_max_fds", "gauge", "The most file descriptors that may be open.", float(most));
            }
        }

        fn seconds(ticks: u64) -> f64 {
            float(ticks) / float(clock_ticks_per_second().max(1))
        }

        #[allow(clippy::cast_precision_loss, reason = "a metric is a float, exact up to 2^53")]
        fn float(value: u64) -> f64 {
            value as f64
        }

        /// Fields of `/proc/self/stat`, by their numbers in `proc_pid_stat(5)`.
        struct Stat {
            /// Clock ticks in user and kernel mode.
            cpu: u64,
            threads: u64,
            /// Clock ticks after the boot.
            begun: u64,
            virtual_bytes: u64,
            resident_pages: u64,
        }

        impl Stat {
            fn read() -> Option<Self> {
                let text = fs::read_to_string("/proc/self/stat").ok()?;
                // The program's name may have blanks and parentheses; the third field comes after it.
                let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
                let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
                Some(Self {
                    cpu: field(14)? + field(15)?,
                    threads: field(20)?,
                    begun: field(22)?,
                    virtual_bytes: field(23)?,
                    resident_pages: field(24)?,
                })
            }
        }

        /// Returns when the system was booted, in seconds since 1970.
        fn booted() -> Option<u64> {
            let text = fs::read_to_string("/proc/stat").ok()?;
            text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use super::*;

    #[cfg(target_os = "linux")]
    fn resident_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_histogram_of_waits_takes_no_memory_however_long_nobody_scrapes() {
        const WAITS: u32 = 2_000_000;
        install();
        wait_latency(Duration::from_micros(70));
        let before = resident_bytes();
        for _ in 1..WAITS {
            wait_latency(Duration::from_micros(70));
        }
        let grown = resident_bytes().saturating_sub(before);
        // Held individually they would take 16 MB.
        assert!(grown < 6_000_000, "{grown} bytes");
        let text = render();
        assert!(text.contains(&format!("muxtap_wait_latency_seconds_bucket{{le=\"0.0001\"}} {WAITS}\n")), "{text}");
    }
}
