"""Prints lines of JSON of programs.py or serving.py as a table: a row for each program, allocators beside each other."""

import json
import sys

rows = {}
for line in sys.stdin:
    if line.startswith("{"):
        r = json.loads(line)
        rows.setdefault(r["name"], {})[r["allocator"]] = r
allocators = ["default", "expandable", "cupool"]
print("| program | requested | active | reserved: " + " | ".join(allocators) + " | of active | seconds: "
      + " / ".join(allocators) + " | results |")
print("|---" * (7 + 1) + "|")
for name, by in rows.items():
    ours = by.get("cupool") or next(iter(by.values()))
    reserved = [str(by[a]["reserved"]) if a in by else "–" for a in allocators]
    seconds = [str(by[a]["seconds"]) if a in by else "–" for a in allocators]
    digests = {r["digest"] for r in by.values() if r["digest"]}
    same = "–" if not digests or len(by) < 2 else "equal" if len(digests) == 1 else "differ"
    print(f"| {name} | {ours['requested']} | {ours['active']} | " + " | ".join(reserved)
          + f" | {ours['reserved'] / max(ours['active'], 1):.3f} | " + " / ".join(seconds) + f" | {same} |")
