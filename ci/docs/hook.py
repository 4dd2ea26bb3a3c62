"""What the site has beyond docs/: the command line, the catalogue with a page for each algorithm, drawn for several numbers
of ranks, links to the repository, and what the search is to find first. build.sh names the command goccl in GOCCL.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile

from mkdocs.structure.files import File

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
GOCCL = os.environ["GOCCL"]
RANKS = 2, 3, 4, 5, 6, 8, 12
DRAWN = 5  # what a page shows first, if the algorithm can have it

# Who pastes a message is to find the page that has it, before those that share many of its words.
BOOST = {"troubleshooting.md": 50, "errors/": 2, "catalogue/": 0.2, "ring-walkthrough.md": 0.2}
WIDE = "---\nhide: [navigation, toc]\n---\n"


def on_files(files, config):
    def add(path, content):
        files.append(File.generated(config, path, content=content))

    for name in ("site.css", "ranks.js"):
        add(f"assets/{name}", (HERE / name).read_text())
    for path, text in commands():
        add(path, text)
    catalogue = files.get_file_from_path("catalogue.md")
    files.remove(catalogue)
    index, pages = algorithms((DOCS / "catalogue.md").read_text())
    add("catalogue/index.md", index)
    for name, text in pages.items():
        drawn = pictures(name)
        for ranks, svg in drawn.items():
            add(f"catalogue/ranks/{name}-{ranks}.svg", svg)
        add(f"catalogue/{name}.md", text + slider(name, sorted(drawn)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files that are not in docs/ lead to the repository, those into the catalogue to its pages."""
    here = pathlib.PurePosixPath(page.file.src_uri).parent
    for start, boost in BOOST.items():
        if page.file.src_uri.startswith(start):
            page.meta.setdefault("search", {})["boost"] = boost

    def link(match):
        target, mark, anchor = match[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = os.path.normpath(here / target)
        if path == "catalogue.md":
            folder = "../" * len(here.parts) + "catalogue/"
            own = files.get_file_from_path(f"catalogue/{anchor}.md")
            return f"]({folder}{anchor}.md)" if own else f"]({folder}index.md{mark}{anchor})"
        if path.startswith("../"):
            kind = "tree" if (ROOT / path[3:]).is_dir() else "blob"
            return f"]({config.repo_url}/{kind}/main/{path[3:]}{mark}{anchor})"
        return match[0]

    return re.sub(r"\]\(([^()\s]+)\)", link, markdown)


def commands():
    """Yields the pages of the command line."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([GOCCL, "man", "--markdown", folder], check=True)
        for path in sorted(pathlib.Path(folder).glob("*.md")):
            yield f"reference/{path.name}", re.sub(r"(?m)^#(#+ )", r"\1", path.read_text())


def algorithms(text):
    """Returns the catalogue without its algorithms, and the page of each of these."""
    parts = re.split(r"(?m)^(?=##+ )", text)
    index, pages = [], {}
    for part in parts:
        head = re.match(r"### (\w+) (\w+)\n", part)
        if head is None:
            index.append(part)
            continue
        name = f"{head[1]}-{head[2]}"
        body = part[head.end():].replace("](../", "](../../").replace(f"![{head[1]} {head[2]}](catalogue/{name}.svg)\n", "")
        pages[name] = f"{WIDE}# {head[1]}: {head[2]}\n{body}"
    whole = WIDE + "".join(index).replace("](../", "](../../")

    def linked(body, elsewhere):
        return re.sub(r"\]\(#([\w-]+)\)",
                      lambda m: f"]({m[1]}.md)" if m[1] in pages else f"]({elsewhere}#{m[1]})", body)

    return linked(whole, ""), {name: linked(body, "index.md") for name, body in pages.items()}


def pictures(name):
    """Returns drawings of an algorithm for those of RANKS that it can have."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        drawn = pool.map(lambda ranks: draw(name, ranks), RANKS)
    return {ranks: svg for ranks, svg in zip(RANKS, drawn, strict=True) if svg}


def draw(name, ranks):
    collective, _, algorithm = name.partition("-")
    done = subprocess.run([GOCCL, "plan", "draw", f"{collective}/{algorithm}", "--ranks", str(ranks)], capture_output=True,
                          text=True)
    return done.stdout if done.returncode == 0 else None


def slider(name, counts):
    """The drawing, and a slider for the number of ranks where there is a choice."""
    if not counts:
        return ""
    first = DRAWN if DRAWN in counts else counts[len(counts) // 2]
    images = "".join(f'<img src="../ranks/{name}-{n}.svg" data-ranks="{n}" alt="{name.replace("-", " ")}, {n} ranks"'
                     f'{"" if n == first else " hidden"} loading="lazy">\n' for n in counts)
    choice = (f'<label>ranks <input type="range" min="0" max="{len(counts) - 1}" value="{counts.index(first)}"> '
              f"<output>{first}</output></label>\n" if len(counts) > 1 else "")
    return f'\n<div class="ranks">\n{choice}{images}</div>\n'
