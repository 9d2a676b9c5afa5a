"""Train a classifier of handwritten digits on a gpuwire device.

Multinomial logistic regression on scikit-learn's digits (1,797 images of 8 × 8 pixels), written
once against the Array API and run twice: with gpuwire, and with NumPy as the check. Without
GPUWIRE_URL it starts a server in a process of its own on this machine.

Exits with 0 only if the test accuracy reaches 0.95 and equals NumPy's to three decimals.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import plotext
from rich.console import Console
from rich.progress import track
from rich.table import Table

import gpuwire as gw

STEPS = 300
LEARNING_RATE = 2.0
WANTED_ACCURACY = 0.95

Array = Any


def train(
    xp: ModuleType, images: Array, targets: Array, steps: Any, on_loss: Callable[[int, float], None]
) -> tuple[Array, Array]:
    """Gradient descent on the cross-entropy; `targets` are one-hot. The same code for any `xp`."""
    weights = xp.zeros((images.shape[1], targets.shape[1]), dtype=xp.float32)
    bias = xp.zeros((targets.shape[1],), dtype=xp.float32)
    for step in steps:
        logits = images @ weights + bias
        logits = logits - xp.max(logits, axis=1, keepdims=True)
        exponentials = xp.exp(logits)
        normaliser = xp.sum(exponentials, axis=1, keepdims=True)
        gradient = (exponentials / normaliser - targets) / images.shape[0]
        if step % 10 == 0:
            likelihood = xp.sum(targets * (logits - xp.log(normaliser)), axis=1)
            on_loss(step, -float(xp.mean(likelihood)))
        weights = weights - LEARNING_RATE * (images.T @ gradient)
        bias = bias - LEARNING_RATE * xp.sum(gradient, axis=0)
    return weights, bias


def accuracy(xp: ModuleType, images: Array, labels: Array, weights: Array, bias: Array) -> float:
    """The share of images whose largest logit is their label's."""
    guesses = xp.argmax(images @ weights + bias, axis=1)
    return float(xp.mean(xp.astype(guesses == labels, xp.float32)))


def split_digits() -> tuple[np.ndarray, ...]:
    """Training images, training labels, test images, test labels; pixels from 0 to 1."""
    # Importing these takes longer than anything else here; meanwhile the server starts.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    split = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
    train_images, test_images, train_labels, test_labels = split
    return train_images, train_labels, test_images, test_labels


def facts(rows: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(f"[bold]{name}[/bold]", value)
    return table


def main() -> int:
    console = Console()
    with ThreadPoolExecutor(max_workers=1) as pool:
        opening = pool.submit(gw.connect)
        train_images, train_labels, test_images, test_labels = split_digits()
    targets = np.eye(10, dtype=np.float32)[train_labels]

    with opening.result() as dev:
        round_trip = sorted(dev.ping() for _ in range(9))[4]
        path = dev.path
        console.print(
            facts(
                [
                    ("device", dev.info.name),
                    (
                        "path",
                        f"{path.address}, round trip {round_trip * 1e3:.2f} ms, "
                        f"datagrams of {path.datagram_bytes} bytes",
                    ),
                ]
            )
        )
        curve: list[tuple[int, float]] = []
        images_there = gw.asarray(train_images, device=dev)
        targets_there = gw.asarray(targets, device=dev)
        began = time.perf_counter()
        weights, bias = train(
            gw,
            images_there,
            targets_there,
            track(range(STEPS), "training", console=console, transient=True),
            lambda step, loss: curve.append((step, loss)),
        )
        dev.sync()
        seconds = time.perf_counter() - began
        reached = accuracy(
            gw,
            gw.asarray(test_images, device=dev),
            gw.asarray(test_labels, device=dev),
            weights,
            bias,
        )
        stats = dev.stats()

    own_weights, own_bias = train(np, train_images, targets, range(STEPS), lambda step, loss: None)
    wanted = accuracy(np, test_images, test_labels, own_weights, own_bias)

    plotext.plot(*zip(*curve, strict=True), marker="braille")
    plotext.title("loss")
    plotext.xlabel("step")
    plotext.xticks(range(0, STEPS + 1, STEPS // 6))
    plotext.plotsize(min(console.width, 76), 14)
    plotext.theme("clear")
    console.print(plotext.uncolorize(plotext.build()), highlight=False, markup=False)
    same = round(reached, 3) == round(wanted, 3)
    console.print(
        facts(
            [
                ("final loss", f"{curve[-1][1]:.4f}"),
                (
                    "test accuracy",
                    f"{reached:.3f} (NumPy {wanted:.3f}, wanted at least {WANTED_ACCURACY})",
                ),
                ("steps per second", f"{STEPS / seconds:.0f}"),
                ("frames sent", f"{stats.frames_sent:,}"),
                ("tasks sent", f"{stats.tasks_sent:,}"),
                ("tasks per frame", f"{stats.tasks_sent / stats.frames_sent:.1f}"),
                ("bytes sent", f"{stats.bytes_sent:,}"),
            ]
        )
    )
    if reached < WANTED_ACCURACY or not same:
        console.print("[red]the accuracy was not reached, or differs from NumPy's[/red]")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
