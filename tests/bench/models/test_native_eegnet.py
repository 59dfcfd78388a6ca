"""The native form of EEGNet against the plain one: values, gradients, statistics, memory."""

import copy
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from afor.bench.models import eegnet
from afor.bench.models.authors import EEGNetAuthors
from afor.bench.models.dataset_shapes import DATASET_SHAPES
from afor.bench.models.eegnet import EEGNet
from afor.bench.models.input_shape import InputShape
from afor.bench.models.native import binding
from afor.bench.models.native.binding import PARAMETERS, Sizes, Task, run, unavailable_reason
from afor.bench.models.native.eegnet import Blocks, native_features, plain_features

needs_native = pytest.mark.skipif(
    unavailable_reason() is not None, reason=f"{unavailable_reason()}"
)
SHAPES = DATASET_SHAPES | {
    "one channel": InputShape.unnamed(1, samples=77, rate_hz=50, classes=2),
    "shortest window": InputShape.unnamed(3, samples=32, rate_hz=64, classes=3),
    "kernel as long as the window": InputShape.unnamed(2, samples=33, rate_hz=66, classes=3),
    "odd length": InputShape.unnamed(5, samples=201, rate_hz=101, classes=2),
    "kernel of one": InputShape.unnamed(2, samples=40, rate_hz=2, classes=2),
}
FORM = "native"  # of the second model of `pair`
SIX = InputShape.unnamed(6, samples=128, rate_hz=128, classes=2)


def step_of(model, signal, seed=7):
    """Return logits and all gradients of one pass with dropout."""
    torch.manual_seed(seed)
    model.zero_grad()
    logits = model(signal)
    weights = torch.linspace(0.5, 2, logits.numel(), dtype=logits.dtype).view_as(logits)
    (logits.sin() * weights).sum().backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters()}


def assert_equal_steps(native, plain, signal):
    assert not native.why_not_native(signal)
    (ours, our_grads), (theirs, their_grads) = step_of(native, signal), step_of(plain, signal)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    size = max(float(grad.abs().max()) for grad in their_grads.values())
    assert our_grads.keys() == their_grads.keys()
    for name, grad in their_grads.items():
        torch.testing.assert_close(our_grads[name], grad, rtol=1e-12, atol=1e-13 * size, msg=name)
    for name, value in plain.state_dict().items():
        ours = native.state_dict()[name]
        torch.testing.assert_close(ours, value, rtol=1e-12, atol=1e-14, msg=name)


@needs_native
@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize("name", SHAPES)
def test_in_float64_a_training_step_equals_the_plain_one(name, batch, pair):
    signal = torch.randn(batch, SHAPES[name].channels, SHAPES[name].samples).double() + 0.5
    plain, native = pair(SHAPES[name])
    assert_equal_steps(native, plain, signal)


@needs_native
@pytest.mark.parametrize("name", DATASET_SHAPES)
def test_the_authors_network_has_the_native_form_too(name, pair):
    shape = SHAPES[name]
    plain, native = pair(shape, EEGNetAuthors)
    assert_equal_steps(native, plain, torch.randn(5, shape.channels, shape.samples).double())


@needs_native
def test_other_widths_settings_and_layouts_of_the_signal(pair):
    for filters, depth, kernel in itertools.product((1, 5), (1, 3), (15, 16)):
        settings = {"temporal_filters": filters, "depth": depth, "kernel_samples": kernel}
        plain, native = pair(SIX, separable_filters=7, dropout=0.5, **settings)
        signal = torch.randn(128, 4, 6).double().permute(1, 2, 0)
        assert not signal.is_contiguous()
        assert_equal_steps(native, plain, signal)


@needs_native
def test_a_norm_without_a_momentum_averages_over_all_batches(pair):
    plain, native = pair(SIX, dropout=0.0)
    for model in (plain, native):
        model.spatial_norm.momentum = None
    for _ in range(3):
        assert_equal_steps(native, plain, torch.randn(4, 6, 128).double())


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SHAPES)
def test_evaluation_equals_the_plain_form_and_changes_nothing(name, dtype, pair):
    shape = SHAPES[name]
    plain, native = (model.eval() for model in pair(shape, dtype=dtype))
    signal = torch.randn(11, shape.channels, shape.samples, dtype=dtype)
    before = copy.deepcopy(native.state_dict())
    with torch.no_grad():
        assert not native.why_not_native(signal)
        ours, theirs = native(signal), plain(signal)
    limits = (1e-12, 1e-13) if dtype == torch.float64 else (1e-4, 1e-5)
    torch.testing.assert_close(ours, theirs, rtol=limits[0], atol=limits[1])
    assert all(torch.equal(value, before[key]) for key, value in native.state_dict().items())


@needs_native
@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("name", DATASET_SHAPES)
def test_in_float32_it_is_as_near_to_float64_as_the_plain_form(name, offset, pair):
    shape = SHAPES[name]
    plain, native = pair(shape, dtype=torch.float32, dropout=0.0)
    exact = copy.deepcopy(plain).double()
    signal = torch.randn(8, shape.channels, shape.samples) + offset
    reference = exact(signal.double()).detach()
    errors = [
        float((model(signal).detach().double() - reference).abs().max() / reference.abs().max())
        for model in (plain, native)
    ]
    assert errors[1] < 2 * errors[0] + 2e-6


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [5, 70])
def test_the_bits_do_not_depend_on_the_number_of_threads(batch, dtype, pair):
    _, native = pair(SIX, dtype=dtype)
    signal = torch.randn(batch, 6, 128, dtype=dtype)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        model = copy.deepcopy(native)
        logits, grads = step_of(model, signal)
        torch.set_num_threads(1)
        results.append([logits, *grads.values(), *model.state_dict().values()])
    for other in results[1:]:
        # The classifier is torch's.
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_native
def test_networks_side_by_side_are_computed_as_each_alone():
    sizes = Sizes(5, 6, 50, 4, 2, 6, 11, 16, 4, 8, 2, torch.float64)
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(shape, generator=generator).double().requires_grad_()

    shapes = [(4, 11), (4,), (4,), (8, 6), (8,), (8,), (8, 16), (6, 4), (6,), (6,)]
    parameters = [draw(*shape) for shape in shapes]
    signal = draw(5, 6, 50).detach()
    masks = [torch.rand(5, 4, 12) > 0.3, torch.rand(5, 3, 1) > 0.3]
    blocks = Blocks(sizes, (1e-3, 1e-4, 1e-5), 1.5)
    together, statistics = native_features(blocks, signal, parameters, masks)
    weights = torch.arange(together.numel()).view_as(together).double().cos()
    grads = torch.autograd.grad((together * weights).sum(), parameters)
    for group in range(2):
        one = blocks._replace(sizes=sizes._replace(filters=2, outputs=3, groups=1))
        mine = [p.detach().chunk(2)[group].requires_grad_() for p in parameters]
        alone, own = native_features(one, signal, mine, masks)
        part = slice(3 * group, 3 * group + 3)
        torch.testing.assert_close(together[:, part], alone, rtol=1e-12, atol=1e-13)
        for ours, theirs in zip(statistics, own, strict=True):
            torch.testing.assert_close(ours.chunk(2)[group], theirs, rtol=1e-12, atol=1e-13)
        expected = torch.autograd.grad((alone * weights[:, part]).sum(), mine)
        for name, ours, theirs in zip(PARAMETERS, grads, expected, strict=True):
            ours = ours.chunk(2)[group]
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12, msg=name)


@needs_native
def test_second_derivatives_flow_through_the_native_form(pair):
    plain, native = pair(SIX)
    signal, products = torch.randn(4, 6, 128).double(), []
    for model in (plain, native):
        torch.manual_seed(2)
        weights = list(model.parameters())
        grads = torch.autograd.grad(model(signal).square().sum(), weights, create_graph=True)
        products.append(torch.autograd.grad(sum(g.square().sum() for g in grads), weights))
    size = max(float(product.abs().max()) for product in products[0])
    for ours, theirs in zip(products[1], products[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13 * size)


@needs_native
def test_a_parameter_in_two_places_has_the_sum_of_their_gradients(pair):
    plain, native = pair(SIX)
    signal, found = torch.randn(4, 6, 128).double(), []
    for model in (plain, native):
        model.separable_norm.weight = model.spatial_norm.weight
        for create_graph in (False, True):
            torch.manual_seed(2)
            loss = model(signal).square().sum()
            weight = model.spatial_norm.weight
            found += torch.autograd.grad(loss, weight, create_graph=create_graph)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-10, atol=1e-12)


@needs_native
def test_a_batch_of_gradients_gets_a_sentence(pair):
    _, native = pair(SIX)
    logits = native(torch.randn(4, 6, 128).double())[0]
    with pytest.raises(RuntimeError, match=r'one gradient at a time.*form="plain"'):
        torch.autograd.grad(
            logits, list(native.parameters()), torch.eye(2).double(), is_grads_batched=True
        )


@needs_native
def test_the_derivative_of_forward_mode_is_not_dropped():
    model, signal = EEGNet(SIX).eval(), torch.randn(4, 6, 128)
    with torch.no_grad(), forward_ad.dual_level():
        assert not model.why_not_native(signal)
        dual = forward_ad.make_dual(signal, torch.ones_like(signal))
        assert model.why_not_native(dual)
        weight = model.pointwise.weight
        del model.pointwise.weight
        model.pointwise.weight = forward_ad.make_dual(weight, torch.ones_like(weight))
        assert model.why_not_native(signal)


@needs_native
def test_values_whose_memory_is_negated_are_read_as_they_are(pair):
    plain, native = pair(SIX, dropout=0.0)
    signal = torch.randn(4, 6, 128).double()
    negated = torch._neg_view(signal)
    assert not native.why_not_native(negated)
    assert_equal_steps(native, plain, negated)
    for model in (plain, native):
        model.spatial.weight = nn.Parameter(torch._neg_view(model.spatial.weight.detach()))
    assert native.spatial.weight.is_neg()
    assert_equal_steps(native, plain, signal)
    arrays = arrays_of(Task.FORWARD)
    arrays["signal"] = torch._neg_view(arrays["signal"])
    with pytest.raises(ValueError, match="holds the negated values"):
        run(Task.FORWARD, SIZES, arrays)


@needs_native
def test_hooks_of_all_modules_are_called():
    model, signal = EEGNet(SIX), torch.randn(4, 6, 128)
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert model.why_not_native(signal)
    finally:
        hook.remove()
    assert not model.why_not_native(signal)


@needs_native
def test_the_backward_pass_can_be_repeated_and_serves_some_parameters_alone(pair):
    _, native = pair(SIX)
    native.spatial.weight.requires_grad_(False)
    loss = native(torch.randn(4, 6, 128).double()).square().sum()
    loss.backward(retain_graph=True)
    first = {n: p.grad.clone() for n, p in native.named_parameters() if p.grad is not None}
    assert "spatial.weight" not in first
    assert len(first) == len(list(native.parameters())) - 1
    loss.backward()
    for name, grad in first.items():
        assert torch.equal(native.get_parameter(name).grad, 2 * grad), name


@needs_native
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_propagates_as_in_the_plain_form(value, pair):
    plain, native = pair(SIX)
    signal = torch.randn(9, 6, 128).double()
    signal[4, 2, 17] = value
    with torch.no_grad():
        ours, theirs = native.eval()(signal), plain.eval()(signal)
    assert torch.equal(ours.isnan(), theirs.isnan())
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13, equal_nan=True)
    (ours, our_grads), (theirs, their_grads) = (
        step_of(model.train(), signal) for model in (native, plain)
    )
    assert ours.isnan().all()
    assert theirs.isnan().all()
    for name, grad in their_grads.items():
        assert torch.equal(our_grads[name].isnan(), grad.isnan()), name


@needs_native
def test_large_activations_do_not_overflow(pair):
    plain, native = pair(SIX)
    for model in (plain, native):
        nn.init.constant_(model.spatial_norm.weight, 1e4)  # exp(-1e4) is 0
    assert_equal_steps(native, plain, torch.randn(4, 6, 128).double())


class Frozen(nn.BatchNorm2d):
    pass


class Foreign(torch.Tensor):
    """A tensor whose numbers may lie elsewhere, as those of a DTensor."""


def make_foreign(model):
    del model.pointwise.weight
    model.pointwise.weight = torch.randn(16, 16, 1, 1).as_subclass(Foreign)


def without_statistics(model):
    model.separable_norm.running_mean = model.separable_norm.running_var = None


FALLBACKS = {
    "a norm without statistics": without_statistics,
    "a dilated convolution": lambda m: setattr(m.depthwise, "dilation", (1, 2)),
    "a padded convolution": lambda m: setattr(m.temporal, "padding", (0, 1)),
    "a convolution with a stride": lambda m: setattr(m.pointwise, "stride", (1, 2)),
    "a convolution of another length": lambda m: setattr(
        m, "depthwise", nn.Conv2d(16, 16, (1, 8), groups=16, bias=False)
    ),
    "a parameter of another class": make_foreign,
    "a replaced norm": lambda m: setattr(m, "spatial_norm", nn.Identity()),
    "a norm of another class": lambda m: setattr(m, "separable_norm", Frozen(16)),
    "a norm in evaluation mode": lambda m: m.temporal_norm.eval(),
    "another dropout": lambda m: setattr(m, "dropout", nn.Identity()),
    "a hook": lambda m: m.depthwise.register_forward_hook(lambda *_: None),
    "half precision": lambda m: m.bfloat16(),
    "parameters of another dtype": lambda m: m.spatial.double(),
    "form fast": lambda m: setattr(m, "form", "fast"),
    "form plain": lambda m: setattr(m, "form", "plain"),
}


@pytest.mark.parametrize("case", FALLBACKS)
def test_what_the_native_form_does_not_do_is_left_to_torch(case):
    model = EEGNet(SIX)
    FALLBACKS[case](model)
    assert model.why_not_native(torch.randn(4, 6, 128))


def test_changed_convolutions_are_computed_layer_by_layer(pair):
    plain, changed = pair(SIX, dropout=0.0)
    changed.form = "auto"
    for model in (plain, changed):
        model.temporal.padding = (0, 1)
    signal = torch.randn(4, 6, 128).double()
    torch.testing.assert_close(changed(signal), plain(signal))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("a hook", "hooks of layers would not be called"),
        ("a replaced norm", "a layer was replaced"),
        ("half precision", "must all be float32 or float64"),
    ],
)
@needs_native
def test_native_by_name_says_why_it_cannot_and_auto_logs_it_once(case, reason, caplog):
    eegnet._log_once.cache_clear()
    model = EEGNet(SIX, form="native")
    FALLBACKS[case](model)
    signal = torch.randn(4, 6, 128).to(model.classifier.weight.dtype)
    with pytest.raises(RuntimeError, match=rf'form="native" cannot be computed here: .*{reason}'):
        model(signal)
    model.form = "auto"
    with caplog.at_level("INFO", "afor"):
        model(signal)
        model(signal)
    assert [reason in text for text in caplog.messages] == [True]


@needs_native
def test_special_calls_are_left_to_torch():
    model = EEGNet(SIX, dropout=0.0)
    signal = torch.randn(4, 6, 128)
    assert not model.why_not_native(signal)
    assert model.why_not_native(signal.clone().requires_grad_())
    assert model.why_not_native(signal.half())
    assert model.why_not_native(signal.to("meta"))
    assert model.why_not_native(signal[:, :, :40])  # shorter than the kernel
    assert model.why_not_native(signal[0])
    assert model.why_not_native(signal[:0])
    with torch.autocast("cpu"):
        assert model.why_not_native(signal)
    assert model.eval().why_not_native(signal)  # gradients in evaluation mode
    with torch.no_grad():
        assert not model.why_not_native(signal)
    parameters = dict(model.named_parameters())

    def loss(values):
        return torch.func.functional_call(model, values, (signal,)).sum()

    assert len(torch.func.grad(loss)(parameters)) == len(parameters)


@needs_native
def test_plain_features_are_the_native_ones():
    sizes = Sizes(3, 2, 40, 2, 2, 3, 8, 16, 4, 8, 1, torch.float64)
    shapes = [(2, 8), (2,), (2,), (4, 2), (4,), (4,), (4, 16), (3, 4), (3,), (3,)]
    parameters = [torch.randn(shape).double() for shape in shapes]
    signal, masks = torch.randn(3, 2, 40).double(), (None, torch.rand(3, 3, 1) > 0.5)
    blocks = Blocks(sizes, (1e-3, 1e-3, 1e-3), 2.0)
    ours, _ = native_features(blocks, signal, parameters, masks)
    expected = plain_features(blocks, signal, parameters, masks)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-13)


def test_without_a_compiler_torch_computes_the_same(monkeypatch, pair):
    shape = DATASET_SHAPES["DEAP"]
    _, native = pair(shape)
    signal = torch.randn(5, shape.channels, shape.samples).double()
    expected = step_of(copy.deepcopy(native), signal)
    monkeypatch.setattr(
        "afor.bench.models.eegnet.unavailable_reason", lambda: "no working C compiler was found"
    )
    with pytest.raises(RuntimeError, match="no working C compiler was found"):
        native(signal)
    native.form = "auto"
    logits, grads = step_of(native, signal)
    torch.testing.assert_close(logits, expected[0], rtol=1e-11, atol=1e-12)
    for name, grad in expected[1].items():
        torch.testing.assert_close(grads[name], grad, rtol=1e-9, atol=1e-11, msg=name)


def test_a_missing_library_gives_its_reason(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    binding._library.cache_clear()
    try:
        assert "install a C compiler" in str(unavailable_reason())
        assert binding.instruction_set() is None
        with pytest.raises(RuntimeError, match="was not built"):
            run(Task.FORWARD, Sizes(3, 2, 40, 2, 2, 3, 8, 16, 4, 8, 1, torch.float64), {})
    finally:
        binding._library.cache_clear()


# ----------------------------------------------------------------------------------- memory


SIZES = Sizes(3, 2, 40, 2, 2, 3, 8, 16, 4, 8, 1, torch.float32)


MASKS = {"keep", "second_keep"}
USED = {
    Task.FORWARD: {"signal", *PARAMETERS, *MASKS, "moments", "statistics", "saved", "features"},
    Task.BACKWARD: {*binding.ARRAYS} - {"signal", "features"},
    Task.EVALUATION: {"signal", *PARAMETERS, "statistics", "features"},
}
for names in USED.values():
    names.add("scratch")


def arrays_of(task: Task) -> dict[str, torch.Tensor | None]:
    """Return all arrays of a task, filled with small numbers."""
    return {
        name: None
        if task is Task.EVALUATION and name in MASKS
        else SIZES.empty(task, name).fill_(1)
        for name in binding.ARRAYS
    }


@needs_native
@pytest.mark.parametrize("task", Task)
def test_every_array_of_another_size_dtype_or_layout_is_refused(task):
    run(task, SIZES, arrays_of(task))
    for name in binding.ARRAYS:
        whole = arrays_of(task)
        if whole[name] is None:
            continue
        for change in (lambda a: a[:-1].clone(), lambda a: torch.cat([a, a[:1]])):
            arrays = whole | {name: change(whole[name])}
            if name not in USED[task]:
                run(task, SIZES, arrays)
                continue
            with pytest.raises(ValueError, match=f"elements of {name}, found"):
                run(task, SIZES, arrays)
        for change in (
            lambda a: a.to(torch.int16),
            lambda a: torch.stack([a, a], dim=1)[:, 0],
            lambda a: a.to("meta"),
        ):
            with pytest.raises(ValueError, match=f"needs {name} as a contiguous"):
                run(task, SIZES, whole | {name: change(whole[name])})


@needs_native
def test_a_tensor_larger_than_its_storage_is_refused():
    arrays = arrays_of(Task.FORWARD)
    arrays["signal"].untyped_storage().resize_(8)
    with pytest.raises(ValueError, match="larger than its storage"):
        run(Task.FORWARD, SIZES, arrays)


@needs_native
@pytest.mark.parametrize(
    "change",
    [{"batch": 0}, {"kernel": 41}, {"samples": 31}, {"groups": 2}, {"depth": -1}, {"pool": 2**40}],
)
def test_impossible_sizes_are_refused(change):
    with pytest.raises(ValueError, match="no network of these sizes"):
        run(Task.FORWARD, SIZES._replace(**change), arrays_of(Task.FORWARD))


SOURCE = Path(binding.__file__).with_name("eegnet.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.timeout(900)  # the sanitizer makes compiling slow
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize("flags", [[], ["-DAFOR_SCALAR"]], ids=["best set", "default set"])
def test_the_library_stays_inside_its_memory(tmp_path, flags):
    driver = Path(__file__).with_name("eegnet_driver.c")
    program = tmp_path / "driver"
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [COMPILER, "-O0", "-g1", "-std=gnu11", "-w", *sanitize, *flags, f"-I{SOURCE.parent}"]
    built = subprocess.run(
        [*command, str(driver), "-lm", "-lpthread", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode and "sanitize" in built.stderr:
        pytest.skip(f"no address sanitizer here: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(program), "60"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "60 networks, 0 failures" in ran.stdout


@pytest.fixture
def load_with(monkeypatch):
    """Load the library anew, as a process does in which the variable names an instruction set."""

    def load(name):
        monkeypatch.setenv(binding.SET_VARIABLE, name)
        binding._library.cache_clear()

    yield load
    monkeypatch.undo()
    binding._library.cache_clear()
    assert binding.unavailable_reason() is None


@needs_native
def test_the_environment_variable_names_the_instruction_set(load_with):
    load_with("default")
    assert (binding.instruction_set(), binding.unavailable_reason()) == ("default", None)
    load_with("avx9")
    with pytest.warns(UserWarning, match="without compiled code: AFOR_EEGNET_ISA=avx9 names no"):
        assert binding.instruction_set() is None
    assert "names no instruction set" in binding.unavailable_reason()
