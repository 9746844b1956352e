"""What scripts/package makes without a tool of its own: archives, the wheel, npm packages, licenses, the SBOM.

Every file is made of its input alone: names in order, owner 0, the time in SOURCE_DATE_EPOCH.
"""

import base64
import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = CARGO["workspace"]["package"]["version"]
ABOUT = CARGO["package"]["description"]
PAGE = "https://github.com/muxtap/muxtap"

# The targets, as PyPI and npm name them.
WHEEL_TAGS = {
    "x86_64-unknown-linux-gnu": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-unknown-linux-gnu": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "x86_64-unknown-linux-musl": "musllinux_1_2_x86_64",
    "aarch64-unknown-linux-musl": "musllinux_1_2_aarch64",
    "x86_64-apple-darwin": "macosx_10_12_x86_64",
    "aarch64-apple-darwin": "macosx_11_0_arm64",
}
NPM = {
    "x86_64-unknown-linux-gnu": ("linux-x64", "linux", "x64", "glibc"),
    "aarch64-unknown-linux-gnu": ("linux-arm64", "linux", "arm64", "glibc"),
    "x86_64-unknown-linux-musl": ("linux-x64-musl", "linux", "x64", "musl"),
    "aarch64-unknown-linux-musl": ("linux-arm64-musl", "linux", "arm64", "musl"),
    "x86_64-apple-darwin": ("darwin-x64", "darwin", "x64", None),
    "aarch64-apple-darwin": ("darwin-arm64", "darwin", "arm64", None),
}


def is_program(path):
    return path.parent.name == "bin"


def write_tar(out, prefix, folder):
    """Writes a folder as .tar.xz, or as .tgz for npm, its files below `prefix`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            info = tarfile.TarInfo(f"{prefix}/{path.relative_to(folder)}")
            info.mtime = EPOCH
            info.uname = info.gname = "root"
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(info)
            elif path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            else:
                data = path.read_bytes()
                info.size, info.mode = len(data), 0o755 if is_program(path) else 0o644
                tar.addfile(info, io.BytesIO(data))
    if out.suffix == ".xz":
        out.write_bytes(xz(packed.getvalue(), "x86_64" in prefix))
        return
    with open(out, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as zipped:
        zipped.write(packed.getvalue())


def xz(data, is_x86):
    """Compresses as `xz -9e` does. For x86, calls are made comparable first, as every xz can undo."""
    filters = [{"id": lzma.FILTER_X86}] if is_x86 else []
    filters.append({"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME})
    return lzma.compress(data, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=filters)


def tracked():
    """Returns the files that git tracks. A tree with changes is refused unless MUXTAP_PACKAGE_DIRTY is set."""
    # A hook's GIT_DIR would name another repository.
    local = run("git", "rev-parse", "--local-env-vars").split()
    env = {name: value for name, value in os.environ.items() if name not in local}
    changed = run("git", "status", "--porcelain", "--untracked-files=no", env=env)
    if changed and not os.environ.get("MUXTAP_PACKAGE_DIRTY"):
        sys.exit(f"pack.py: uncommitted changes; commit them, or set MUXTAP_PACKAGE_DIRTY=1 for a trial:\n{changed}")
    names = run("git", "ls-files", "-z", "--cached", env=env).split("\0")
    return sorted(name for name in set(names) if name and os.path.lexists(ROOT / name))


def unpacked():
    """Returns the files of an unpacked source archive, without what a build puts beside them."""
    built = {ROOT / "target", ROOT / "fuzz/target", ROOT / "web/node_modules"}
    built.add(pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or "target").absolute())
    names = []
    for folder, folders, files in os.walk(ROOT):
        here = pathlib.Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if name not in links and here / name not in built and name != "__pycache__"]
        names += [str((here / name).relative_to(ROOT)) for name in files + links if here / name not in built]
    return sorted(names)


def write_source(out):
    """Writes the sources: what git tracks; in a folder that is not a clone, all files that no build has made."""
    names = tracked() if (ROOT / ".git").exists() else unpacked()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            path = ROOT / name
            info = tarfile.TarInfo(f"muxtap-{VERSION}-src/{name}")
            info.mtime, info.uname, info.gname = EPOCH, "root", "root"
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(info)
                continue
            data = path.read_bytes()
            info.size, info.mode = len(data), 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(info, io.BytesIO(data))
    with open(out, "wb") as file, gzip.GzipFile("", "wb", 9, file, 0) as zipped:
        zipped.write(packed.getvalue())


def write_wheel(out, stage, target):
    """Writes the wheel: both programs as scripts, which pip and uv copy to `bin`."""
    tag = WHEEL_TAGS[target]
    info = f"muxtap-{VERSION}.dist-info"
    readme = (ROOT / "packaging/registry-readme.md").read_text()
    metadata = f"""Metadata-Version: 2.1
Name: muxtap
Version: {VERSION}
Summary: {ABOUT}
Home-page: {PAGE}
License: MIT
Keywords: {",".join(CARGO["workspace"]["package"]["keywords"])}
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Operating System :: MacOS
Classifier: Programming Language :: Rust
Requires-Python: >=3.7
Description-Content-Type: text/markdown

{readme}"""
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.split("."))
    files = {
        f"muxtap-{VERSION}.data/scripts/muxtap": (stage / "bin/muxtap").read_bytes(),
        f"muxtap-{VERSION}.data/scripts/muxtapd": (stage / "bin/muxtapd").read_bytes(),
        f"{info}/LICENSE": (stage / "LICENSE").read_bytes(),
        f"{info}/LICENSES-THIRD-PARTY.txt": (stage / "LICENSES-THIRD-PARTY.txt").read_bytes(),
        f"{info}/sboms/muxtap.cdx.json": (stage / "muxtap.cdx.json").read_bytes(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: muxtap\nRoot-Is-Purelib: false\n{tags}".encode(),
    }
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = out / f"muxtap-{VERSION}-py3-none-{tag}.whl"
    stamp = time.gmtime(max(EPOCH, 315532800))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, stamp)
            entry.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o100755 if "/scripts/" in name else 0o100644
            entry.external_attr, entry.create_system = mode << 16, 3
            wheel.writestr(entry, data)


def write_npm(work, stage, target):
    """Writes the folders of both npm packages: `muxtap`, which finds the program, and the target's."""
    name, system, processor, libc = NPM[target]
    common = {
        "version": VERSION,
        "license": "MIT",
        "homepage": PAGE,
        "repository": {"type": "git", "url": f"git+{PAGE}.git"},
    }
    platform = {"name": f"@muxtap/{name}", "description": f"The programs of muxtap for {system} on {processor}", **common}
    platform |= {"os": [system], "cpu": [processor]} | ({"libc": [libc]} if libc else {})
    platform |= {"preferUnplugged": True, "files": ["bin", "LICENSES-THIRD-PARTY.txt", "muxtap.cdx.json"]}
    main = {
        "name": "muxtap",
        "description": ABOUT,
        # The MCP registry compares this with server.json.
        "mcpName": json.loads((ROOT / "server.json").read_text())["name"],
        **common,
        "keywords": CARGO["workspace"]["package"]["keywords"] + ["mcp"],
        "bin": {"muxtap": "bin/muxtap.js"},
        "files": ["bin"],
        "engines": {"node": ">=18"},
        "os": ["linux", "darwin"],
        "optionalDependencies": {f"@muxtap/{other}": VERSION for other, *_ in NPM.values()},
    }

    def lay(folder, about, files):
        for path, data, mode in files + [
            ("package.json", json.dumps(about, indent=2).encode() + b"\n", 0o644),
            ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        ]:
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.chmod(mode)

    programs = [(f"bin/{one}", (stage / "bin" / one).read_bytes(), 0o755) for one in ("muxtap", "muxtapd")]
    more = [(one, (stage / one).read_bytes(), 0o644) for one in ("LICENSES-THIRD-PARTY.txt", "muxtap.cdx.json")]
    readme = f"The programs of [muxtap](https://www.npmjs.com/package/muxtap) for {system} on {processor}.\n"
    lay(work / name, platform, programs + more + [("README.md", readme.encode(), 0o644)])
    start = (ROOT / "packaging/npm/muxtap.js").read_bytes()
    readme = (ROOT / "packaging/registry-readme.md").read_bytes()
    lay(work / "muxtap", main, [("bin/muxtap.js", start, 0o755), ("README.md", readme, 0o644)])


def run(*command, env=None):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


def crates(target):
    """Returns the crates of the programs for a target: what cargo links, muxtap's own included, in order."""
    tree = run(
        "cargo", "tree", "--locked", "--offline", "-p", "muxtap", "--target", target,
        "-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p}",
    )
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    known = json.loads(run("cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", target))
    found = [one for one in known["packages"] if (one["name"], "v" + one["version"]) in linked]
    assert len(found) == len(linked), "cargo tree and cargo metadata disagree"
    depends = {node["id"]: node["dependencies"] for node in known["resolve"]["nodes"]}
    return sorted(found, key=lambda one: (one["name"], one["version"])), depends


def page_packages():
    """Returns what of npm is in the page: packages/page-licenses.txt, which was made of its node_modules."""
    text = (ROOT / "packaging/page-licenses.txt").read_text()
    return [line.split()[1:] for line in text.splitlines() if line.startswith("== ")], text


LICENSE_FILE = re.compile(r"^(licen[cs]e|copying|notice|copyright|unlicense)", re.I)


def license_files(crate):
    folder = pathlib.Path(crate["manifest_path"]).parent
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and LICENSE_FILE.match(path.name)]
    return [path.read_text(errors="replace").replace("\r\n", "\n").strip() + "\n" for path in found]


def write_licenses(out, target):
    """Writes the licenses of all crates and of the page's packages; equal texts once, with their crates."""
    found, _ = crates(target)
    foreign = [one for one in found if one["source"]]
    texts, without = {}, []
    for crate in foreign:
        files = license_files(crate)
        if not files:
            without.append(crate)
        for text in files:
            texts.setdefault(text, []).append(f"{crate['name']} {crate['version']}")
    lines = [f"muxtap {VERSION} contains the crates and packages below, under these licenses.\n"]
    lines += [f"{one['name']} {one['version']}: {one['license']}" for one in foreign]
    if without:
        lines.append("\nThese name their license and their authors, and ship no text of it. The license of each is among the texts below.\n")
        lines += [f"{one['name']} {one['version']}: {one['license']}; {', '.join(one['authors']) or one['repository']}" for one in without]
    for text, names in texts.items():
        lines.append("\n" + "=" * 80 + "\n" + ", ".join(names) + "\n" + "-" * 80 + "\n" + text)
    lines.append("\n" + "=" * 80 + "\n" + page_packages()[1])
    pathlib.Path(out).write_text("\n".join(lines))


def write_sbom(out, target):
    """Writes the software bill of materials: CycloneDX 1.5, in JSON."""
    found, depends = crates(target)
    sums = {
        (one["name"], one["version"]): one.get("checksum")
        for one in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }
    urls = {one["id"]: f"pkg:cargo/{one['name']}@{one['version']}" for one in found}

    def component(crate):
        about = {
            "type": "application" if crate["name"] == "muxtap" else "library",
            "bom-ref": urls[crate["id"]],
            "name": crate["name"],
            "version": crate["version"],
            "purl": urls[crate["id"]],
        }
        if crate["license"]:
            about["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
        if checksum := sums.get((crate["name"], crate["version"])):
            about["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return about

    own = next(one for one in found if one["name"] == "muxtap")
    page = [
        {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url,
         "licenses": [{"expression": spdx}]}
        for name, version, spdx in page_packages()[0]
        for url in [f"pkg:npm/{name.replace('@', '%40')}@{version}"]
    ]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
            "component": component(own),
            "properties": [{"name": "target", "value": target}],
        },
        "components": [component(one) for one in found if one is not own] + page,
        "dependencies": [
            {"ref": urls[one["id"]], "dependsOn": sorted(urls[to] for to in depends[one["id"]] if to in urls)}
            for one in found
        ],
    }
    pathlib.Path(out).write_text(json.dumps(bom, indent=1) + "\n")


def fill(source, out, *values):
    """Writes a template with its `@NAME@` replaced; `values` are NAME=VALUE."""
    date = time.gmtime(EPOCH)
    known = {
        "VERSION": VERSION,
        "ABOUT": ABOUT,
        "DATE_DEBIAN": time.strftime("%a, %d %b %Y %H:%M:%S +0000", date),
        "DATE_RPM": time.strftime("%a %b %d %Y", date),
        **dict(value.split("=", 1) for value in values),
    }
    text = pathlib.Path(source).read_text()
    pathlib.Path(out).write_text(re.sub(r"@([A-Z][A-Z0-9_]+)@", lambda name: known[name[1]], text))


def main(command, *words):
    paths = [pathlib.Path(word) for word in words]
    match command:
        case "version":
            print(VERSION)
        case "tar":
            write_tar(paths[0], words[1], paths[2])
        case "source":
            write_source(paths[0])
        case "wheel":
            write_wheel(paths[0], paths[1], words[2])
        case "npm":
            write_npm(paths[0], paths[1], words[2])
        case "npm-name":
            print(NPM[words[0]][0])
        case "licenses":
            write_licenses(*words)
        case "sbom":
            write_sbom(*words)
        case "fill":
            fill(*words)
        case _:
            sys.exit(f"pack.py: unknown command `{command}`")


main(*sys.argv[1:])
