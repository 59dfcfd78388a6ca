"""The table of optimizers that a study can name, with the paper's settings and their origin.

This module does not import torch: classes are given as text and loaded when they are built.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Section = Literal["paper", "ablation", "control", "rule", "rival", "alternative"]
Decay = Literal["coupled", "decoupled"]

# Sec. IV-C: "All Adam-family baselines share β₁ = 0.9, β₂ = 0.999, and ε = 1e-8".
ADAM_FAMILY = {"betas": (0.9, 0.999), "eps": 1e-8}
# Sec. III: the lower bound, the direction weight w and the warm-up length T_w.
AFOR_DESIGN = {**ADAM_FAMILY, "beta2_min": 0.99, "direction_weight": 1.0, "warmup_steps": 100}
# Sec. IV-C: β₁ = 0.965, β₂ = 0.99, ρ = 0.04, K = 10.
SOPHIA = {"betas": (0.965, 0.99), "rho": 0.04, "interval": 10}

HEADINGS: Mapping[Section, str] = MappingProxyType(
    {
        "paper": "The seven of the paper",
        "ablation": "Ablations of AFOR (paper's Table IV)",
        "control": "Controls",
        "rule": "Other rules for β₂",
        "rival": "Rivals of today",
        "alternative": "Other forms of the same methods",
    }
)


@dataclass(frozen=True)
class RegisteredOptimizer:
    """One optimizer of the table: its class and its arguments."""

    name: str
    label: str  # name in tables and figures
    section: Section  # of the list that `afor optimizers` prints
    target: str  # "module:Class"
    settings: Mapping[str, object]  # besides lr and weight_decay, which the study decides
    reference: str  # the publication, or the section of the paper
    decay: Decay = "decoupled"  # protocol: each keeps its own coupling of the weight decay
    loop: str = ""  # what the training loop must do besides calling step()
    variant_of: str | None = None  # the entry from which it differs only in the settings

    @property
    def origin(self) -> str:
        """Return the package with the code."""
        return "torch" if self.target.startswith("torch.") else "this package"


def _afor(
    name: str, label: str, section: Section, reference: str, **changes: object
) -> RegisteredOptimizer:
    return RegisteredOptimizer(
        name, label, section, "afor:AFOR",
        {**AFOR_DESIGN, **changes},
        reference, variant_of="afor" if changes else None,
    )  # fmt: skip


_OURS = "afor.bench.optimizers"
_SAMPLED = "a second backward pass every 10 steps"
_SOPHIA_AUTHORS = {**SOPHIA, "hessian_batch": "next", "hessian_clip": 1.0}
_MARS_AUTHORS = {
    "betas": (0.95, 0.99), "eps": 1e-8, "gamma": 0.025, "matrices_only": True,
    "lr_rest": 3e-3, "betas_rest": (0.9, 0.95), "weight_decay_rest": 0.1,
}  # fmt: skip

# Name, label, section, class; settings; reference, and what else is special.
_ENTRIES = [
    RegisteredOptimizer(
        "adam", "Adam", "paper", "torch.optim:Adam",
        ADAM_FAMILY,
        "Kingma & Ba, ICLR 2015", decay="coupled",
    ),
    RegisteredOptimizer(
        "adamw", "AdamW", "paper", "torch.optim:AdamW",
        ADAM_FAMILY,
        "Loshchilov & Hutter, ICLR 2019",
    ),
    RegisteredOptimizer(
        "radam", "RAdam", "paper", "torch.optim:RAdam",
        ADAM_FAMILY,
        "Liu et al., ICLR 2020", decay="coupled",
    ),
    RegisteredOptimizer(
        "adamp", "AdamP", "paper", f"{_OURS}.adamp:AdamP",
        {**ADAM_FAMILY, "delta": 0.1, "wd_ratio": 0.1},  # the published defaults
        "Heo et al., ICLR 2021",
    ),
    RegisteredOptimizer(
        "sophia", "Sophia", "paper", f"{_OURS}.sophia:Sophia",
        SOPHIA,
        "Liu et al., ICLR 2024", loop=_SAMPLED,
    ),
    RegisteredOptimizer(
        "mars", "MARS", "paper", f"{_OURS}.mars:MARS",
        # γ is the published default; MARS on every tensor.
        {**ADAM_FAMILY, "gamma": 0.025, "matrices_only": False},
        "Yuan et al., ICML 2025", loop="keeps the previous gradient",
    ),
    _afor("afor", "AFOR", "paper", "Sec. III"),
    _afor("afor_no_dc", "AFOR w/o DC", "ablation", "Table IV", direction_weight=0.0),
    _afor("afor_no_fc", "AFOR w/o FC", "ablation", "Table IV", fast_channel=False),
    _afor("afor_no_srn", "AFOR w/o SRN", "ablation", "Table IV", normalization="fixed"),
    _afor("afor_no_tsg", "AFOR w/o TSG", "ablation", "Table IV", warmup_steps=0),
    _afor("afor_no_ec", "AFOR w/o EC", "ablation", "Table IV", correction="fixed"),
    _afor(
        "afor_fixed_099", "AFOR β₂=0.99", "ablation", "Table IV",
        betas=(0.9, 0.99), beta2_min=0.99,
    ),
    _afor("afor_fixed_0999", "AFOR β₂=0.999", "ablation", "Table IV", beta2_min=0.999),
    RegisteredOptimizer(
        "adamw_09945", "AdamW β₂=0.9945", "control", "torch.optim:AdamW",
        # The middle of [0.99, 0.999], where AFOR stays for its first thousands of steps.
        {"betas": (0.9, 0.9945), "eps": 1e-8},
        "ours: is it the adaptation, or the constant?", variant_of="adamw",
    ),
    RegisteredOptimizer(
        "adamw_per_tensor", "AdamW β₂ per tensor", "control", f"{_OURS}.per_tensor:PerTensorAdamW",
        ADAM_FAMILY,  # a study adds beta2_by_tensor; without it this is AdamW
        "ours: AFOR's own time average, held constant",
    ),
    _afor(
        "afor_calibrated", "AFOR calibrated", "control",
        "ours: score statistics without the slow start", statistics="calibrated",
    ),
    RegisteredOptimizer(
        "afor_released", "AFOR released", "control", "afor.released:ReleasedAFOR",
        {**ADAM_FAMILY, "beta2_min": 0.99, "dir_weight": 1.0},
        "the package afor-optimizer 0.1.0, step by step",
    ),
    _afor(
        "afor_wide", "AFOR wide", "rule",
        "ours: calibrated, with β₂ down to 0.9", statistics="calibrated", beta2_min=0.9,
    ),
    RegisteredOptimizer(
        "kourkoutas", "Kourkoutas-β", "rule", f"{_OURS}.beta2_rules:Kourkoutas",
        # The settings of the paper's language model, without its warm-up of 250 of 50 001 steps.
        {**ADAM_FAMILY, "beta2_min": 0.88, "alpha": 0.93},
        "Kassinos, arXiv 2508.12996: β₂ falls where ‖g‖ exceeds its running mean",
    ),
    RegisteredOptimizer(
        "nosadam", "NosAdam", "rule", f"{_OURS}.beta2_rules:ScheduledAdamW",
        {**ADAM_FAMILY, "schedule": "nosadam", "exponent": 0.1},
        "Huang et al., IJCAI 2019: early gradients weigh most",
    ),
    RegisteredOptimizer(
        "adamw_power", "AdamW β₂=1−t^−0.8", "rule", f"{_OURS}.beta2_rules:ScheduledAdamW",
        {**ADAM_FAMILY, "schedule": "power", "exponent": 0.8},
        "the β₂ of PaLM (Chowdhery et al., JMLR 2023) and Adafactor",
    ),
    RegisteredOptimizer(
        "muon", "Muon", "rival", f"{_OURS}.muon:MuonAdamW",
        ADAM_FAMILY,
        "Jordan 2024, torch's Muon on matrices and kernels; AdamW on the rest",
    ),
    RegisteredOptimizer(
        "sophia_authors", "Sophia (authors)", "alternative", f"{_OURS}.sophia:Sophia",
        _SOPHIA_AUTHORS,
        "the Sophia authors' training script: next batch, sampled gradient clipped",
        variant_of="sophia", loop=_SAMPLED,
    ),
    RegisteredOptimizer(
        "sophia_bs_5120", "Sophia bs=5120", "alternative", f"{_OURS}.sophia:Sophia",
        {**_SOPHIA_AUTHORS, "bs": 5120},
        "sophia_authors as a call of their code without bs gives it",
        variant_of="sophia", loop=_SAMPLED,
    ),
    RegisteredOptimizer(
        "radam_decoupled", "RAdam decoupled", "alternative", "torch.optim:RAdam",
        {**ADAM_FAMILY, "decoupled_weight_decay": True},
        "the weight decay of the RAdam authors' code", variant_of="radam",
    ),
    RegisteredOptimizer(
        "mars_authors", "MARS (authors)", "alternative", f"{_OURS}.mars:MARS",
        _MARS_AUTHORS,
        "the defaults of the MARS authors' code: AdamW on all but matrices",
        variant_of="mars", loop="keeps the previous gradient of matrices",
    ),
]  # fmt: skip

OPTIMIZERS: Mapping[str, RegisteredOptimizer] = MappingProxyType({e.name: e for e in _ENTRIES})
PAPER_OPTIMIZERS = tuple(entry.name for entry in _ENTRIES if entry.section == "paper")
