"""AFOR in training frameworks, each the real library where it is installed."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from afor import AFOR
from afor.monitor import read

# Lightning advises workers for a loader of 96 samples, and uses what torch 2.13 is to drop.
quiet_lightning = pytest.mark.filterwarnings(
    "ignore:The 'train_dataloader' does not have many workers",
    "ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning",
)


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] * x[:, 1] > 0).long()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def trained_by_hand(epochs: int, batch: int, **options: Any) -> nn.Sequential:
    """Train without any framework, in the order of the samples."""
    x, y = samples()
    model = network()
    optimizer = AFOR(model.parameters(), lr=1e-2, **options)
    for _ in range(epochs):
        for begin in range(0, len(x), batch):
            optimizer.zero_grad()
            part = slice(begin, begin + batch)
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
    return model


def loader() -> Any:
    """Return the samples in batches, in their order."""
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples()), batch_size=32)


def assert_same(model: nn.Module, other: nn.Module) -> None:
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q)


# ------------------------------------------------------------------------------------- skorch


def test_skorch_trains_as_a_loop_by_hand_does() -> None:
    skorch = pytest.importorskip("skorch")
    x, y = samples()
    classifier = skorch.NeuralNetClassifier(
        network(), criterion=nn.CrossEntropyLoss, optimizer=AFOR, lr=1e-2,
        optimizer__beta2_min=0.95, optimizer__warmup_steps=10,
        max_epochs=3, batch_size=32, train_split=None, verbose=0,
    )  # fmt: skip
    classifier.fit(x.numpy(), y.numpy())
    assert_same(classifier.module_, trained_by_hand(3, 32, beta2_min=0.95, warmup_steps=10))
    assert len({reading.beta2 for reading in read(classifier.optimizer_).values()}) > 1


def test_skorch_searches_the_options_of_afor() -> None:
    skorch = pytest.importorskip("skorch")
    search = pytest.importorskip("sklearn.model_selection")
    x, y = samples()
    classifier = skorch.NeuralNetClassifier(
        network(), criterion=nn.CrossEntropyLoss, optimizer=AFOR, lr=1e-2, max_epochs=2,
        train_split=None, verbose=0,
    )  # fmt: skip
    grid = search.GridSearchCV(classifier, {"optimizer__beta2_min": [0.9, 0.99]}, cv=2)
    grid.fit(x.numpy(), y.numpy())
    assert grid.best_params_["optimizer__beta2_min"] in (0.9, 0.99)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()


def test_skorch_saves_and_loads_the_control_state(tmp_path) -> None:
    skorch = pytest.importorskip("skorch")
    x, y = samples()

    def fresh() -> Any:
        return skorch.NeuralNetClassifier(
            network(), criterion=nn.CrossEntropyLoss, optimizer=AFOR, lr=1e-2, max_epochs=2,
            batch_size=32, train_split=None, verbose=0,
        ).initialize()  # fmt: skip

    first, second = fresh(), fresh()
    first.fit(x.numpy(), y.numpy())
    first.save_params(tmp_path / "model.pt", tmp_path / "optimizer.pt")
    second.load_params(tmp_path / "model.pt", tmp_path / "optimizer.pt")
    first.partial_fit(x.numpy(), y.numpy())
    second.partial_fit(x.numpy(), y.numpy())
    assert_same(first.module_, second.module_)


# --------------------------------------------------------------------------------------- MOABB


def test_a_moabb_evaluation_takes_a_pipeline_with_afor(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("_MNE_FAKE_HOME_DIR", str(tmp_path))
    skorch = pytest.importorskip("skorch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("moabb", exc_type=ImportError)
        from moabb.datasets.fake import FakeDataset
        from moabb.evaluations import CrossSubjectEvaluation
        from moabb.paradigms import MotorImagery
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer

        torch.manual_seed(0)
        classifier = skorch.NeuralNetClassifier(
            nn.Sequential(nn.Flatten(), nn.LazyLinear(2)), criterion=nn.CrossEntropyLoss,
            optimizer=AFOR, optimizer__beta2_min=0.95, lr=1e-4, max_epochs=2, train_split=None,
            verbose=0,
        )  # fmt: skip
        pipeline = make_pipeline(FunctionTransformer(np.float32), classifier)
        dataset = FakeDataset(
            ("left_hand", "right_hand"), n_sessions=1, n_runs=1, n_subjects=2, seed=0
        )
        evaluation = CrossSubjectEvaluation(
            paradigm=MotorImagery(n_classes=2), datasets=[dataset], overwrite=True,
            hdf5_path=str(tmp_path),
        )  # fmt: skip
        results = evaluation.process({"AFOR": pipeline})
    assert len(results) == 2
    assert results["score"].between(0, 1).all()


# ------------------------------------------------------------------------------------ lightning


def lightning_fit(folder: Path, epochs: int, **options: Any) -> tuple[Any, nn.Module]:
    """Train with Lightning for that many epochs; return the trainer and the model."""
    lightning = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = network()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            x, y = batch
            return nn.functional.cross_entropy(self.model(x), y)

        def configure_optimizers(self) -> AFOR:
            return AFOR(self.parameters(), lr=1e-2)

    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    module = Classifier()
    trainer.fit(module, loader(), **options)
    return trainer, module.model


@quiet_lightning
def test_lightning_trains_as_a_loop_by_hand_does(tmp_path) -> None:
    _, model = lightning_fit(tmp_path, 3)
    assert_same(model, trained_by_hand(3, 32))


@quiet_lightning
def test_a_lightning_checkpoint_carries_the_control_state(tmp_path) -> None:
    trainer, _ = lightning_fit(tmp_path, 2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    _, model = lightning_fit(tmp_path, 3, ckpt_path=tmp_path / "two.ckpt", weights_only=True)
    assert_same(model, trained_by_hand(3, 32))


# ----------------------------------------------------------------------------------- accelerate


def accelerated() -> Any:
    accelerate = pytest.importorskip("accelerate")
    return accelerate.Accelerator(cpu=True)


def accelerated_epoch(accelerator: Any, model: nn.Module, optimizer: Any, data: Any) -> None:
    for x, y in data:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()


def test_accelerate_trains_as_a_loop_by_hand_does() -> None:
    accelerator, model = accelerated(), network()
    prepared = accelerator.prepare(model, AFOR(model.parameters(), lr=1e-2), loader())
    for _ in range(3):
        accelerated_epoch(accelerator, *prepared)
    assert_same(accelerator.unwrap_model(prepared[0]), trained_by_hand(3, 32))


def test_accelerate_saves_and_loads_the_control_state(tmp_path) -> None:
    for begin, end in ((0, 2), (2, 3)):
        accelerator, model = accelerated(), network()
        prepared = accelerator.prepare(model, AFOR(model.parameters(), lr=1e-2), loader())
        if begin:
            accelerator.load_state(str(tmp_path / "two"))
        for _ in range(begin, end):
            accelerated_epoch(accelerator, *prepared)
        if not begin:
            accelerator.save_state(str(tmp_path / "two"))
    assert_same(accelerator.unwrap_model(prepared[0]), trained_by_hand(3, 32))


# --------------------------------------------------------------------------------- transformers


class _Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.model(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def hugging_face_fit(folder: Path, resume: str | None = None, **arguments: Any) -> Any:
    """Train for three epochs in the order of the samples; return the trainer."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    x, y = samples()
    rows = [{"x": a, "labels": b} for a, b in zip(x, y, strict=True)]
    settings = transformers.TrainingArguments(
        output_dir=str(folder), num_train_epochs=3, per_device_train_batch_size=32,
        learning_rate=1e-2, lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[],
        use_cpu=True, disable_tqdm=True, train_sampling_strategy="sequential",
        dataloader_pin_memory=False, **arguments,
    )  # fmt: skip
    trainer = transformers.Trainer(
        _Classifier(), settings, train_dataset=rows,
        optimizer_cls_and_kwargs=(AFOR, {"lr": 1e-2, "beta2_min": 0.95, "warmup_steps": 2}),
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_the_hugging_face_trainer_trains_as_a_loop_by_hand_does(tmp_path) -> None:
    trainer = hugging_face_fit(tmp_path, save_strategy="no")
    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    assert type(inner) is AFOR
    assert {group["beta2_min"] for group in inner.param_groups} == {0.95}
    options = {"beta2_min": 0.95, "warmup_steps": 2, "weight_decay": 0.0}  # Trainer sets the last
    assert_same(trainer.model.model, trained_by_hand(3, 32, **options))


def test_the_hugging_face_trainer_resumes_with_the_control_state(tmp_path) -> None:
    hugging_face_fit(tmp_path, save_strategy="steps", save_steps=6)
    trainer = hugging_face_fit(tmp_path, str(tmp_path / "checkpoint-6"), save_strategy="no")
    options = {"beta2_min": 0.95, "warmup_steps": 2, "weight_decay": 0.0}  # Trainer sets the last
    assert_same(trainer.model.model, trained_by_hand(3, 32, **options))


# ---------------------------------------------------------------------------- pytorch_optimizer


def trained_with(optimizer_of: Any, epochs: int) -> tuple[nn.Sequential, Any]:
    """Train in the order of the samples; return the model and its optimizer."""
    x, y = samples()
    model = network()
    optimizer = optimizer_of(AFOR(model.parameters(), lr=1e-2, warmup_steps=2))
    for _ in range(epochs):
        for begin in range(0, len(x), 32):
            optimizer.zero_grad()
            part = slice(begin, begin + 32)
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
    return model, optimizer


def test_lookahead_pulls_afor_back_to_the_slow_weights() -> None:
    wrappers = pytest.importorskip("pytorch_optimizer")

    class ByHand:
        def __init__(self, optimizer: AFOR) -> None:
            self.optimizer, self.steps = optimizer, 0
            self.zero_grad = optimizer.zero_grad
            self.slow = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]

        @torch.no_grad()
        def step(self) -> None:
            self.optimizer.step()
            self.steps += 1
            if self.steps % 5 == 0:
                for slow, p in zip(
                    self.slow, self.optimizer.param_groups[0]["params"], strict=True
                ):
                    slow += 0.5 * (p - slow)
                    p.copy_(slow)

    model, _ = trained_with(lambda afor: wrappers.Lookahead(afor, k=5, alpha=0.5), 4)
    by_hand, _ = trained_with(ByHand, 4)
    assert_same(model, by_hand)


def schedule_free(afor: AFOR) -> Any:
    optimizer = pytest.importorskip("pytorch_optimizer").ScheduleFreeWrapper(afor, momentum=0.9)
    optimizer.train()
    return optimizer


def test_schedule_free_averages_the_steps_of_afor() -> None:
    class ByHand:  # gradients at y = 0.1 z + 0.9 x, steps of z, x the mean of all z
        def __init__(self, optimizer: AFOR) -> None:
            self.optimizer, self.steps = optimizer, 0
            self.zero_grad = optimizer.zero_grad
            self.params = optimizer.param_groups[0]["params"]
            self.z = [p.detach().clone() for p in self.params]
            self.x = [p.detach().clone() for p in self.params]

        @torch.no_grad()
        def step(self) -> None:
            self.steps += 1
            for p, z in zip(self.params, self.z, strict=True):
                p.copy_(z)
            self.optimizer.step()
            for p, z, x in zip(self.params, self.z, self.x, strict=True):
                z.copy_(p)
                x += (z - x) / self.steps
                p.copy_(0.1 * z + 0.9 * x)

    model, optimizer = trained_with(schedule_free, 4)
    by_hand, averages = trained_with(ByHand, 4)
    assert_same(model, by_hand)
    optimizer.eval()
    for p, x in zip(model.parameters(), averages.x, strict=True):
        torch.testing.assert_close(p, x)


@pytest.mark.parametrize("wrapper", ["Lookahead", "ScheduleFreeWrapper"])
def test_a_wrapper_saves_and_loads_the_control_state(wrapper: str, tmp_path: Path) -> None:
    make = getattr(pytest.importorskip("pytorch_optimizer"), wrapper)

    def wrapped(optimizer: AFOR) -> Any:
        made = make(optimizer)
        if wrapper == "ScheduleFreeWrapper":
            made.train()
        return made

    def one_more_step(model: nn.Module, optimizer: Any) -> None:
        x, y = samples()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    first, optimizer = trained_with(wrapped, 2)
    second = network()
    second.load_state_dict(first.state_dict())
    resumed = wrapped(AFOR(second.parameters(), lr=1e-2, warmup_steps=2))
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    resumed.load_state_dict(torch.load(tmp_path / "optimizer.pt"))
    one_more_step(first, optimizer)
    one_more_step(second, resumed)
    assert_same(first, second)


# ------------------------------------------------------------------------------ torch's own hooks


def test_a_step_within_the_backward_pass_is_that_of_the_whole_optimizer() -> None:
    x, y = samples()
    model = network()
    optimizers = {p: AFOR([p], lr=1e-2) for p in model.parameters()}

    def step_and_free(p: torch.Tensor) -> None:
        optimizers[p].step()  # type: ignore[index]
        optimizers[p].zero_grad()  # type: ignore[index]

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_and_free)
    for _ in range(3):
        for begin in range(0, len(x), 32):
            part = slice(begin, begin + 32)
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            assert all(p.grad is None for p in model.parameters())
    assert_same(model, trained_by_hand(3, 32))


def test_a_flat_piece_of_all_parameters_has_one_beta2() -> None:
    # This is why DeepSpeed's ZeRO is not supported.
    torch.manual_seed(0)
    tensors = [nn.Parameter(torch.zeros(50)) for _ in range(2)]
    flat = nn.Parameter(torch.zeros(100))
    optimizers = [AFOR(p, lr=1e-2, warmup_steps=2) for p in (tensors, [flat])]
    for step in range(20):
        for scale, p in zip((1.0, (-1.0) ** step), tensors, strict=True):  # steady, and noisy
            p.grad = scale * torch.ones(50) + 0.1 * torch.randn(50)
        flat.grad = torch.cat([p.grad for p in tensors])
        for optimizer in optimizers:
            optimizer.step()
    apart = [reading.beta2 for reading in read(optimizers[0]).values()]
    (together,) = (reading.beta2 for reading in read(optimizers[1]).values())
    assert min(abs(beta2 - together) for beta2 in apart) > 1e-5
