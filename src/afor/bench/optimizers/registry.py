"""The table of optimizers that a study can name, with the paper's settings and their origin.

This module does not import torch: classes are given as text and loaded when they are built.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["paper", "ablation", "control", "rule", "alternative"]
Decay = Literal["coupled", "decoupled"]

# Sec. IV-C: "All Adam-family baselines share β₁ = 0.9, β₂ = 0.999, and ε = 1e-8".
ADAM_FAMILY = {"betas": (0.9, 0.999), "eps": 1e-8}
# Sec. III: the lower bound, the direction weight w and the warm-up length T_w.
AFOR_DESIGN = {**ADAM_FAMILY, "beta2_min": 0.99, "direction_weight": 1.0, "warmup_steps": 100}
# Sec. IV-C: β₁ = 0.965, β₂ = 0.99, ρ = 0.04, K = 10.
SOPHIA = {"betas": (0.965, 0.99), "rho": 0.04, "interval": 10}

HEADINGS: Mapping[Kind, str] = MappingProxyType(
    {
        "paper": "The seven of the paper",
        "ablation": "Ablations of AFOR (paper's Table IV)",
        "control": "Controls",
        "rule": "Other rules for β₂, and a ceiling",
        "alternative": "Other forms of the same methods",
    }
)


@dataclass(frozen=True)
class RegisteredOptimizer:
    """One optimizer of the table: its class and its arguments."""

    name: str
    label: str  # name in tables and figures
    kind: Kind
    target: str  # "module:Class"
    settings: Mapping[str, object]  # besides lr and weight_decay, which the study decides
    decay: Decay  # protocol: each optimizer keeps its own coupling of the weight decay
    origin: str  # the package with the code
    reference: str  # the publication, or the section of the paper
    loop: str = ""  # what the training loop must do besides calling step()
    variant_of: str | None = None  # the entry from which it differs only in the settings


def _afor(
    name: str, label: str, kind: Kind, reference: str, **changes: object
) -> RegisteredOptimizer:
    return RegisteredOptimizer(
        name=name,
        label=label,
        kind=kind,
        target="afor:AFOR",
        settings={**AFOR_DESIGN, **changes},
        decay="decoupled",
        origin="this package",
        reference=reference,
        variant_of="afor" if changes else None,
    )


_ENTRIES = [
    RegisteredOptimizer(
        name="adam",
        label="Adam",
        kind="paper",
        target="torch.optim:Adam",
        settings=ADAM_FAMILY,
        decay="coupled",
        origin="torch",
        reference="Kingma & Ba, ICLR 2015",
    ),
    RegisteredOptimizer(
        name="adamw",
        label="AdamW",
        kind="paper",
        target="torch.optim:AdamW",
        settings=ADAM_FAMILY,
        decay="decoupled",
        origin="torch",
        reference="Loshchilov & Hutter, ICLR 2019",
    ),
    RegisteredOptimizer(
        name="radam",
        label="RAdam",
        kind="paper",
        target="torch.optim:RAdam",
        settings=ADAM_FAMILY,
        decay="coupled",
        origin="torch",
        reference="Liu et al., ICLR 2020",
    ),
    RegisteredOptimizer(
        name="adamp",
        label="AdamP",
        kind="paper",
        target="afor.bench.optimizers.adamp:AdamP",
        # δ and the weight-decay ratio are the published defaults.
        settings={**ADAM_FAMILY, "delta": 0.1, "wd_ratio": 0.1},
        decay="decoupled",
        origin="this package",
        reference="Heo et al., ICLR 2021",
    ),
    RegisteredOptimizer(
        name="sophia",
        label="Sophia",
        kind="paper",
        target="afor.bench.optimizers.sophia:Sophia",
        settings=SOPHIA,
        decay="decoupled",
        origin="this package",
        reference="Liu et al., ICLR 2024",
        loop="a second backward pass every 10 steps",
    ),
    RegisteredOptimizer(
        name="mars",
        label="MARS",
        kind="paper",
        target="afor.bench.optimizers.mars:MARS",
        # γ is the published default; MARS on every tensor.
        settings={**ADAM_FAMILY, "gamma": 0.025, "matrices_only": False},
        decay="decoupled",
        origin="this package",
        reference="Yuan et al., ICML 2025",
        loop="keeps the previous gradient",
    ),
    _afor("afor", "AFOR", "paper", "Sec. III"),
    _afor("afor_no_dc", "AFOR w/o DC", "ablation", "Table IV", direction_weight=0.0),
    _afor("afor_no_fc", "AFOR w/o FC", "ablation", "Table IV", fast_channel=False),
    _afor("afor_no_srn", "AFOR w/o SRN", "ablation", "Table IV", normalization="fixed"),
    _afor("afor_no_tsg", "AFOR w/o TSG", "ablation", "Table IV", warmup_steps=0),
    _afor("afor_no_ec", "AFOR w/o EC", "ablation", "Table IV", correction="fixed"),
    _afor(
        "afor_fixed_099",
        "AFOR β₂=0.99",
        "ablation",
        "Table IV",
        betas=(0.9, 0.99),
        beta2_min=0.99,
    ),
    _afor("afor_fixed_0999", "AFOR β₂=0.999", "ablation", "Table IV", beta2_min=0.999),
    RegisteredOptimizer(
        name="adamw_09945",
        label="AdamW β₂=0.9945",
        kind="control",
        target="torch.optim:AdamW",
        # The middle of [0.99, 0.999], where AFOR stays for its first thousands of steps.
        settings={"betas": (0.9, 0.9945), "eps": 1e-8},
        decay="decoupled",
        origin="torch",
        variant_of="adamw",
        reference="ours: is it the adaptation, or the constant?",
    ),
    RegisteredOptimizer(
        name="adamw_per_tensor",
        label="AdamW β₂ per tensor",
        kind="control",
        target="afor.bench.optimizers.per_tensor:PerTensorAdamW",
        # A study adds beta2_by_tensor; without it this is AdamW.
        settings=ADAM_FAMILY,
        decay="decoupled",
        origin="this package",
        reference="ours: AFOR's own time average, held constant",
    ),
    _afor(
        "afor_calibrated",
        "AFOR calibrated",
        "control",
        "ours: score statistics without the slow start",
        statistics="calibrated",
    ),
    _afor(
        "afor_released",
        "AFOR released",
        "control",
        "the package afor-optimizer 0.1.0, step by step",
        variant="released",
    ),
    _afor(
        "afor_wide",
        "AFOR wide",
        "rule",
        "ours: calibrated, with β₂ down to 0.9",
        statistics="calibrated",
        beta2_min=0.9,
    ),
    RegisteredOptimizer(
        name="kalman",
        label="Kalman β₂",
        kind="rule",
        target="afor.bench.optimizers.kalman:KalmanAdamW",
        settings={**ADAM_FAMILY, "beta2_min": 0.9, "beta2_max": 0.9997, "lag": 32, "memory": 0.999},
        decay="decoupled",
        origin="this package",
        reference="ours: the gain of a local level model of log mean g²",
    ),
    RegisteredOptimizer(
        name="adamw_per_subject",
        label="AdamW v per subject",
        kind="rule",
        target="afor.bench.optimizers.per_subject:PerSubjectAdamW",
        settings={**ADAM_FAMILY, "prior_steps": 10},
        decay="decoupled",
        origin="this package",
        reference="ours: a ceiling; knows whose windows a batch holds",
        loop="says whose windows a batch holds; batches of one subject only",
    ),
    RegisteredOptimizer(
        name="sophia_authors",
        label="Sophia (authors)",
        kind="alternative",
        target="afor.bench.optimizers.sophia:Sophia",
        settings={**SOPHIA, "hessian_batch": "next", "hessian_clip": 1.0},
        decay="decoupled",
        origin="this package",
        variant_of="sophia",
        reference="the Sophia authors' training script: next batch, sampled gradient clipped",
        loop="a second backward pass every 10 steps",
    ),
    RegisteredOptimizer(
        name="sophia_bs_5120",
        label="Sophia bs=5120",
        kind="alternative",
        target="afor.bench.optimizers.sophia:Sophia",
        settings={**SOPHIA, "hessian_batch": "next", "hessian_clip": 1.0, "bs": 5120},
        decay="decoupled",
        origin="this package",
        variant_of="sophia",
        reference="sophia_authors as a call of their code without bs gives it",
        loop="a second backward pass every 10 steps",
    ),
    RegisteredOptimizer(
        name="radam_decoupled",
        label="RAdam decoupled",
        kind="alternative",
        target="torch.optim:RAdam",
        settings={**ADAM_FAMILY, "decoupled_weight_decay": True},
        decay="decoupled",
        origin="torch",
        variant_of="radam",
        reference="the weight decay of the RAdam authors' code",
    ),
    RegisteredOptimizer(
        name="mars_authors",
        label="MARS (authors)",
        kind="alternative",
        target="afor.bench.optimizers.mars:MARS",
        settings={
            "betas": (0.95, 0.99),
            "eps": 1e-8,
            "gamma": 0.025,
            "matrices_only": True,
            "lr_rest": 3e-3,
            "betas_rest": (0.9, 0.95),
            "weight_decay_rest": 0.1,
        },
        decay="decoupled",
        origin="this package",
        variant_of="mars",
        reference="the defaults of the MARS authors' code: AdamW on all but matrices",
        loop="keeps the previous gradient of matrices",
    ),
]

OPTIMIZERS: Mapping[str, RegisteredOptimizer] = MappingProxyType({e.name: e for e in _ENTRIES})
PAPER_OPTIMIZERS = tuple(entry.name for entry in _ENTRIES if entry.kind == "paper")
