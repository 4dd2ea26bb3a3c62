"""The bytes that goccl's kernels read and write in a second, beside the driver's copies within the device's memory.

    python kernels.py --suite driver.test
"""
import argparse
import re
import subprocess

from results import FAIL, INFO, PASS, tell

BAR = "kernels move from 64 MiB on at least 85 % of what the driver's copies do"
LEAST = 0.85


def measured(output: str) -> dict[tuple[int, str], float]:
    """Returns GB/s by MiB of an operand and kernel, of a Go benchmark's output."""
    found = re.findall(r"^BenchmarkBandwidth/(\S+)/(\d+)MiB\S*\s.*?([\d.e+]+) GB/s", output, re.MULTILINE)
    return {(int(size), name): float(rate) for name, size, rate in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True, help="the compiled tests of cuda/driver")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--time", default="100ms", help="for each kernel")
    options = parser.parse_args()
    done = subprocess.run([options.suite, "-test.run=^$", "-test.bench=^BenchmarkBandwidth$", "-test.timeout=50s",
                           f"-test.benchtime={options.time}", f"-driver.gpu={options.gpu}"],
                          capture_output=True, text=True)
    print(done.stdout, done.stderr)
    rates = measured(done.stdout)
    shares = {}
    for (size, name), rate in rates.items():
        tell(f"{name}, {size} MiB an operand", INFO, f"{rate:.0f} GB/s read and written", rate=rate)
        if name != "driver":
            shares[size, name] = rate / rates[size, "driver"]
    if done.returncode or not shares:
        raise SystemExit(f"the suite ended with {done.returncode}, and told of {len(rates)} kernels")
    (size, name), share = min(shares.items(), key=lambda item: item[1])
    tell(BAR, PASS if share >= LEAST else FAIL, f"{share:.0%} by the slowest, {name} of {size} MiB", share=share)


if __name__ == "__main__":
    main()
