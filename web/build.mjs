// Builds the page into dist/, each file gzipped the same way every time, or with --tests the unit tests into out/.
// --check compares what dist/ holds with what it would be, and changes nothing.

import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { gunzipSync } from "node:zlib";
import { build } from "esbuild";

const zopfli = createRequire(import.meta.url)("@gfx/zopfli");

const here = new URL(".", import.meta.url).pathname;
process.chdir(here);

// Bytes of all files together, compressed; docs/page.md promises it.
const MOST = 150 * 1024;

if (process.argv.includes("--tests")) {
    rmSync("out", { recursive: true, force: true });
    const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
    await build({
        absWorkingDir: here,
        entryPoints: tests.map((name) => `test/${name}`),
        outdir: "out",
        outExtension: { ".js": ".mjs" },
        bundle: true,
        format: "esm",
        platform: "node",
        logLevel: "warning",
    });
} else {
    const files = await bundle();
    const check = process.argv.includes("--check");
    const packed = new Map();
    for (const [name, bytes] of files) {
        packed.set(name, await pack(bytes));
    }
    const differing = check ? differences(files) : write(packed);
    let total = 0;
    for (const [name, { length: size }] of packed) {
        total += size;
        console.log(`${String(size).padStart(7)}  ${name}`);
    }
    console.log(`${String(total).padStart(7)}  in all, of at most ${MOST}`);
    if (total > MOST) {
        console.error("the page is too large");
        process.exit(1);
    }
    if (differing.length > 0) {
        console.error(`web/dist is not what the sources make: ${differing.join(", ")}; run scripts/page build and commit`);
        process.exit(1);
    }
}

async function bundle() {
    const result = await build({
        absWorkingDir: here,
        entryPoints: { page: "src/main.ts", editor: "src/editor/code.ts", style: "src/page.css" },
        outdir: "dist",
        bundle: true,
        minify: true,
        format: "esm",
        target: ["es2022", "chrome123", "firefox121", "safari17.5"],
        legalComments: "none",
        charset: "utf8",
        write: false,
        logLevel: "warning",
    });
    const files = new Map();
    for (const file of result.outputFiles) {
        const name = file.path.split("/").pop().replace("style.css", "page.css");
        files.set(name, file.contents);
    }
    for (const name of ["index.html", "icon.svg", "manifest.webmanifest"]) {
        files.set(name, readFileSync(`src/${name}`));
    }
    return new Map([...files].sort(([one], [other]) => (one < other ? -1 : 1)));
}

/** Compresses once for all browsers: slowly, to some 4 % less than gzip does. */
async function pack(bytes) {
    const packed = await zopfli.gzipAsync(bytes, { numiterations: 15 });
    // The header's last byte names the system that packed it.
    packed[9] = 255;
    return packed;
}

function write(packed) {
    rmSync("dist", { recursive: true, force: true });
    mkdirSync("dist");
    for (const [name, bytes] of packed) {
        writeFileSync(`dist/${name}.gz`, bytes);
    }
    return [];
}

// What is in the files counts: another zlib may pack the same bytes otherwise.
function differences(files) {
    const there = new Set(readdirSync("dist"));
    const differing = [];
    for (const [name, bytes] of files) {
        const packed = `${name}.gz`;
        if (!there.delete(packed) || !gunzipSync(readFileSync(`dist/${packed}`)).equals(Buffer.from(bytes))) {
            differing.push(packed);
        }
    }
    return [...differing, ...there];
}
