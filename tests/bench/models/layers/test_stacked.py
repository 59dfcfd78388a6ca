import pytest
import torch

from afor.bench.models.hslt import Block, RegionEncoder
from afor.bench.models.layers.stacked import _mix, _scores, stacked_block, stacked_encoder


@pytest.mark.parametrize(("electrodes", "kept"), [(3, 4), (5, 4), (2, 3)])
def test_stacked_encoders_equal_one_encoder_after_another(electrodes, kept):
    encoders = [RegionEncoder(5, electrodes, kept, dropout=0.4).double().eval() for _ in range(3)]
    members = torch.randn(3, 7, electrodes, 5, dtype=torch.float64)
    expected = torch.stack([e(m) for e, m in zip(encoders, members, strict=True)])
    torch.testing.assert_close(stacked_encoder(encoders, members), expected)


def test_every_encoder_receives_its_own_gradient():
    encoders = [RegionEncoder(5, 4, 4, dropout=0.0).double() for _ in range(2)]
    members = torch.randn(2, 6, 4, 5, dtype=torch.float64)
    weights = torch.randn(2, 6, 32, dtype=torch.float64)
    (stacked_encoder(encoders, members) * weights).sum().backward()
    ours = [[p.grad.clone() for p in encoder.parameters()] for encoder in encoders]
    for encoder, member, weight, got in zip(encoders, members, weights, ours, strict=True):
        encoder.zero_grad()
        (encoder(member) * weight).sum().backward()
        for grad, parameter in zip(got, encoder.parameters(), strict=True):
            torch.testing.assert_close(grad, parameter.grad)


def test_a_single_block_may_be_stacked():
    block = Block(16, dropout=0.0).double()
    tokens = torch.randn(5, 4, 16, dtype=torch.float64)
    ours = stacked_block([block], tokens.permute(2, 1, 0).unsqueeze(0))
    torch.testing.assert_close(ours[0].permute(2, 1, 0), block(tokens))


def test_dropout_acts_in_training_and_only_there():
    block = Block(8, dropout=0.4)
    tokens = torch.randn(1, 8, 4, 16)
    assert not torch.equal(stacked_block([block], tokens), stacked_block([block], tokens))
    block.eval()
    assert torch.equal(stacked_block([block], tokens), stacked_block([block], tokens))


def test_the_attention_products_have_right_derivatives_of_both_orders():
    query, key = (torch.randn(1, 2, 3, 2, 2, dtype=torch.float64).requires_grad_() for _ in "qk")
    weights = torch.randn(1, 2, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(_scores(query, key), torch.einsum("rhdib,rhdjb->rhijb", query, key))
    torch.testing.assert_close(_mix(weights, key), torch.einsum("rhijb,rhdjb->rhdib", weights, key))
    for function, inputs in ((_scores, (query, key)), (_mix, (weights, key))):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)
