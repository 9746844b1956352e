//! Metrics, and their Prometheus form. Pane contents never appear in a metric.

use std::{
    sync::{
        LazyLock, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use muxtap_core::GapReason;

macro_rules! metric {
    ($(#[doc = $doc:literal] $name:ident: $kind:ty = $make:ident!($key:literal);)*) => {$(
        #[doc = $doc]
        pub static $name: LazyLock<$kind> = LazyLock::new(|| $make!($key));
    )*
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

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

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

/// The number of histogram samples that are held individually before they are counted into buckets.
/// The exporter by itself counts them only at a scrape.
const SAMPLES: u32 = 1024;

/// Records the time from the deciding output of a wait to its response.
pub fn wait_latency(latency: Duration) {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    WAIT_LATENCY.record(latency.as_secs_f64());
    if TAKEN.fetch_add(1, Ordering::Relaxed) % SAMPLES == SAMPLES - 1
        && let Some(handle) = HANDLE.get()
    {
        handle.run_upkeep();
    }
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

/// Starts counting. Before this call, and in programs without it, every metric is a no-op.
pub fn install() {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(
            Matcher::Full("muxtap_wait_latency_seconds".into()),
            &[0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0],
        )
        .map(PrometheusBuilder::build_recorder);
    if let Ok(recorder) = recorder
        && HANDLE.set(recorder.handle()).is_ok()
        && metrics::set_global_recorder(recorder).is_ok()
    {
        describe();
        for metric in [&TMUX_COMMANDS, &PROCESS_SPAWNS, &OUTPUT_BYTES, &LINES_UNKNOWN, &FLOODS, &SCREEN_DIFFERENCES] {
            metric.increment(0);
        }
        WAITS_ACTIVE.set(0.0);
        CLIENTS.set(0.0);
        STREAMS.set(0.0);
        for reason in GapReason::ALL {
            counter!("muxtap_gaps_total", "reason" => reason.as_str()).increment(0);
        }
    }
}

/// Returns the Prometheus text exposition of everything counted so far.
pub fn render() -> String {
    HANDLE
        .get()
        .map(|handle| {
            handle.run_upkeep();
            handle.render()
        })
        .unwrap_or_default()
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
