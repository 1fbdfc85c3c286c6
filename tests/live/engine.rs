//! A real engine in a temporary directory, and the worker on it.

use std::ffi::OsStr;
use std::net::TcpListener;

use crate::shell::provide_shell;
use crate::support::{Client, Process, Seal, Stand};

const CONFIG: &str = include_str!("engine-config.yaml");

/// `worktree serve` on the engine `program`.
pub async fn stand(program: &OsStr) -> Stand {
    let seal = Seal::new();
    let (ws, http) = (free_port(), free_port());
    let place = seal.path().join("engine");
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("config.yaml"), CONFIG).unwrap();
    let mut command = seal.command(program.to_str().unwrap());
    command.current_dir(&place).args(["--config", "config.yaml", "--no-update-check"]);
    command.env("LIVE_WS_PORT", ws.to_string()).env("LIVE_HTTP_PORT", http.to_string());
    command.env("LIVE_DATA", place.join("data"));
    command.env("III_TELEMETRY_ENABLED", "false").env("III_TELEMETRY_DEV", "true");
    command.env("IIIWORKER_DISABLE_BUILTIN_DAEMONS", "1").env("OTEL_SDK_DISABLED", "true");
    let engine = Process::start("the engine", command);
    let (url, http) = (format!("ws://127.0.0.1:{ws}"), format!("http://127.0.0.1:{http}"));
    let shell = Client::connect(&url).await;
    provide_shell(shell.sdk());
    Stand::serve_on(seal, &url.clone(), url, http, Box::new((shell, engine))).await
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
