#!/usr/bin/env node
// Starts muxtap's program, which is in the package of this system (optionalDependencies).
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { dirname, join } = require("node:path");

const isMusl = () => process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
const name = `@muxtap/${process.platform}-${process.arch}${isMusl() ? "-musl" : ""}`;

let program;
try {
    program = join(dirname(require.resolve(`${name}/package.json`)), "bin", "muxtap");
} catch {
    console.error(`muxtap: the package ${name} is missing: install muxtap without --no-optional, or from source`);
    process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
const signals = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"];
for (const signal of signals) {
    process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
    console.error(`muxtap: cannot run ${program}: ${error.message}`);
    process.exit(1);
});
child.on("exit", (status, signal) => process.exit(signal ? 128 + constants.signals[signal] : status));
