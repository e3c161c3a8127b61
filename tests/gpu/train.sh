#!/usr/bin/env bash
# All weights of the default target, trained on one large GPU in under nine minutes: the target's own answers and its hidden
# states, then every head at once, then what builds on others. Input comes in pieces of at most 60 MB, for machines that are
# reached in no other way; the GGUF file in two halves, which are joined here:
#
#   split -n 2 SmolLM2-135M-Instruct.Q4_1.gguf gguf.
#   bash tests/gpu/train.sh --pieces gguf.aa gguf.ab --data text_open_models.npz selfgen_smollm2_135m.npz
#
# --wheels FOLDER   Python packages of requirements.txt that the machine lacks or has too old, installed beside its own without a network
# --only NAME ...   of: draft specdec medusa mtp eagle eagle3 scratch-mtp scratch-medusa
# --minutes N       for everything (default 8.5)
# --quick           a few tokens and steps on any machine, to try this script
#
# What comes out lies under $OUT (default: out) as heads.tar.aa, heads.tar.ab, ... of 15 MB each (cat heads.tar.* | tar x gives the
# folders assets/heads and assets/models) and train.log. Where it is stopped early, what was finished is there.
set -euo pipefail
began=$SECONDS
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${OUT:-out}
pieces=() data=() only=() wheels="" quick="" minutes=8.5 into=""
while [ $# -gt 0 ]; do
    case $1 in
        --pieces | --data | --only) into=${1#--} ;;
        --wheels) wheels=$2 into="" && shift ;;
        --minutes) minutes=$2 into="" && shift ;;
        --quick) quick=yes into="" ;;
        --*) echo "unknown option $1" >&2 && exit 2 ;;
        *)
            [ -n "$into" ] || { echo "what is $1?" >&2; exit 2; }
            declare -n list=$into && list+=("$1")
            ;;
    esac
    shift
done
[ ${#pieces[@]} -gt 0 ] && [ ${#data[@]} -gt 0 ] || { sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for file in "${pieces[@]}" "${data[@]}"; do
    [ -s "$file" ] || { echo "there is no file $file" >&2; exit 2; }
done
[ ${#only[@]} -gt 0 ] || only=(draft specdec medusa mtp eagle eagle3 scratch-mtp scratch-medusa)

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
log=$out/train.log
trained=$work/trained/assets
mkdir -p "$trained/heads" "$trained/models"
export XDG_CACHE_HOME=$work/cache HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

spent() { echo $((SECONDS - began)); }
say() { printf '%4d s  %s\n' "$(spent)" "$*" | tee -a "$log"; }
wanted() { [[ " ${only[*]} " == *" $1 "* ]]; }
# What is left of the time, less $1 seconds for what comes after, in minutes; never less than a few seconds.
left() { python3 -c "print(round(max(0.1, $minutes - ($(spent) + $1) / 60), 2))"; }
pack() {
    # a checkpoint is three times the size of what it becomes, and of use only where the work went on
    tar -C "$work/trained" --exclude 'checkpoint*' --exclude '*.partial' -cf - assets | split -b 15000000 - "$out/heads.tar."
    say "packed: $(du -cm "$out"/heads.tar.* | tail -1 | cut -f1) MB"
}
finish() {
    code=$?
    jobs -p | xargs -r kill 2>/dev/null || true
    wait 2>/dev/null || true
    pack || true
    rm -rf "$work"
    exit $code
}
trap finish EXIT
trap 'exit 143' TERM INT

# --- the machine

if [ -n "$wheels" ]; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$work/site" "$wheels"/*.whl
    export PYTHONPATH=$PYTHONPATH:$work/site
fi
python3 - <<'PY' | tee -a "$log"
import gguf, numpy, platformdirs, safetensors, torch, tqdm, transformers, yaml
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
    raise SystemExit("transformers 5.24 or later is needed, with its huggingface_hub: give both with --wheels")
where = torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
print(f"        torch {torch.__version__}, transformers {transformers.__version__}, on {where}")
PY

# --- the target

target=$work/smollm2-135m.gguf
cat "${pieces[@]}" >"$target"
python3 - "$target" <<'PY'
import hashlib, sys
from specviz.specs import spec
want = next(source["sha256"] for source in spec("smollm2-135m").sources if "sha256" in source)
with open(sys.argv[1], "rb") as file:
    if hashlib.file_digest(file, "sha256").hexdigest() != want:
        sys.exit("the pieces, in this order, are not the target's GGUF file")
PY
say "the target is whole"

train() { python3 -m specviz train "$@"; }
if [ -n "$quick" ]; then
    long=(--count 4 --shortest 20 --longest 40)
    collecting=(--temperatures 0 --prompts 8 --max-new 8 --limit 4000 --longest 128 --dtype float32 --batch 4)
    small=(--layers 1 --hidden 64 --heads 2 --kv-heads 1 --intermediate 96 --limit-tokens 4000 --tokens 512)
    shape=(--tokens 256 --vocab 512)
else
    long=(--count 600)
    collecting=(--temperatures 0 0 0.8 0.8 1.0 --max-new 192 --limit 5000000 --longest 2048 --batch 512)
    small=(--tokens 16384 --limit-tokens 6000000)
    # on a CPU, twice the usual rate over small batches learned fastest; here batches are eight times larger
    shape=(--tokens 8192 --vocab 8192 --lr 0.002)
fi
shape+=(--epochs 40) small+=(--epochs 40)

# --- what every head trains from

features=$work/features
train prompts --target "$target" --data "${data[@]}" --out "$work/long.jsonl" "${long[@]}"
train collect --target "$target" --data "${data[@]}" "$work/long.jsonl" --out "$features" --taps eagle3 "${collecting[@]}" 2>>"$log"
say "collected: $(du -sm "$features" | cut -f1) MB"

# --- every head at once: none of them fills a large GPU, and all read the same files

failed=()
declare -A started
start() { # name, then what trains it
    name=$1 && shift
    if [ -n "$quick" ]; then "$@" >>"$log" 2>&1 || failed+=("$name"); else
        OMP_NUM_THREADS=2 "$@" >"$work/$name.log" 2>&1 &
        started[$name]=$!
    fi
}
await() {
    for name in "${!started[@]}"; do
        wait "${started[$name]}" || failed+=("$name")
        cat "$work/$name.log" >>"$log"
    done
    started=()
}

heads=$trained/heads/smollm2-135m
for_later=$([ -n "$quick" ] && echo 0 || echo 110)
limit=$([ -n "$quick" ] && echo 0.05 || left "$for_later")
common=(--target "$target" --features "$features" --limit "$limit")
wanted draft && start draft train draft "${common[@]}" --out "$heads/draft" "${shape[@]}"
wanted medusa && start medusa train medusa "${common[@]}" --out "$heads/medusa" --heads 3 "${shape[@]}"
wanted mtp && start mtp train mtp "${common[@]}" --out "$heads/mtp" --steps 2 "${shape[@]}"
wanted eagle && start eagle train eagle "${common[@]}" --out "$heads/eagle" "${shape[@]}" --feature 0.1 --token 1.0
wanted eagle3 && start eagle3 train eagle3 "${common[@]}" --out "$heads/eagle3" "${shape[@]}"
wanted scratch-mtp && start scratch-mtp train scratch "${common[@]}" --out "$trained/models/scratch-mtp" \
    --head "$trained/heads/scratch-mtp/mtp" --mtp 0.3 "${small[@]}"
wanted scratch-medusa && start scratch-medusa train scratch "${common[@]}" --out "$trained/models/scratch-medusa" "${small[@]}"
await
say "trained side by side, $limit minutes each"

# --- what builds on them

limit=$([ -n "$quick" ] && echo 0.05 || left 45)
wanted specdec && [ -s "$heads/draft/config.json" ] && start specdec train specdec --target "$target" --features "$features" \
    --limit "$limit" --draft "$heads/draft" --out "$heads/specdec" --tokens 4096 --epochs 40
medusa_of_scratch() {
    model=$trained/models/scratch-medusa
    train collect --target "$model" --told-by "$target" --data "${data[@]}" --out "$work/small" "${collecting[@]}" --dtype float32 --longest 512
    limit=$([ -n "$quick" ] && echo 0.05 || left 20)
    train medusa --target "$model" --features "$work/small" --limit "$limit" --out "$trained/heads/scratch-medusa/medusa" \
        --tokens "$([ -n "$quick" ] && echo 256 || echo 8192)" --vocab 0 --epochs 40
}
wanted scratch-medusa && [ -s "$trained/models/scratch-medusa/config.json" ] && start medusa-of-scratch medusa_of_scratch
await

# --- what each is worth, on prompts that none was trained on

python3 - "$trained" <<'PY' | tee -a "$log"
import json, sys
from pathlib import Path
for file in sorted([*Path(sys.argv[1]).rglob("heads/*/*/config.json"), *Path(sys.argv[1]).rglob("training.json")]):
    facts = json.loads(file.read_text())
    held = facts["held_out"].get("own") or facts["held_out"].get("text") or {}
    shown = {key: value for key, value in held.items() if key != "tokens"}
    print(f"        {file.parent.parent.name}/{file.parent.name}: {facts['answer_tokens']} tokens seen; held out {shown}")
PY
[ ${#failed[@]} -eq 0 ] || { say "failed: ${failed[*]}; see train.log"; exit 1; }
say "done"
