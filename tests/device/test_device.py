"""The simulated device itself, in one process without a group."""
import copy
import time

import pytest
import sim
import torch


def close(a, b):
    torch.testing.assert_close(a.cpu(), b.cpu())


def _operators(rank):
    x, y = torch.randn(4, 6), torch.randn(6, 3)
    a, b = x.to("sim"), y.to("sim")
    assert a.device == torch.device("sim", 0) and a.is_sim
    assert torch.equal((a @ b).cpu(), x @ y)
    assert torch.equal(a.t().contiguous().cpu(), x.t())
    assert torch.equal(a[1:3, ::2].clone().cpu(), x[1:3, ::2])
    assert torch.equal(torch.cat([a, a.flip(0)]).cpu(), torch.cat([x, x.flip(0)]))
    assert torch.equal(a[a > 0].cpu(), x[x > 0])
    assert torch.equal(a.to(torch.bfloat16).cpu(), x.to(torch.bfloat16))
    assert torch.equal(torch.view_as_real(torch.complex(a, a)).cpu(), torch.view_as_real(torch.complex(x, x)))
    assert a.sum().item() == x.sum().item() and torch.equal(a, a.clone())
    assert torch.equal(torch.topk(a, 2).indices.cpu(), torch.topk(x, 2).indices)
    assert torch.arange(5, device="sim").tolist() == [0, 1, 2, 3, 4]

    a[:, 1] = 7
    x[:, 1] = 7
    assert torch.equal(a.cpu(), x)
    view = a.view(-1)
    view.mul_(2)
    assert torch.equal(a.cpu(), 2 * x)
    out = torch.empty(0, device="sim")
    assert torch.add(a, a, out=out) is out and torch.equal(out.cpu(), 4 * x)
    first, second = torch.empty(2, device="sim"), torch.empty(2, dtype=torch.int64, device="sim")
    torch.max(torch.tensor([[1.0, 3.0], [4.0, 2.0]], device="sim"), dim=1, out=(first, second))
    assert first.tolist() == [3, 4] and second.tolist() == [1, 0]
    torch._foreach_add_([a, out], [a, out])
    assert torch.equal(a.cpu(), 4 * x) and torch.equal(out.cpu(), 8 * x)

    grown = torch.arange(3.0, device="sim").resize_(4, 2)
    assert grown.shape == (4, 2) and grown.view(-1)[:3].tolist() == [0, 1, 2]
    grown.untyped_storage().resize_(0)
    grown.untyped_storage().resize_(32)
    other = torch.empty(0, device="sim").set_(a.untyped_storage(), 6, (2, 2), (6, 1))
    assert torch.equal(other.cpu(), a.cpu()[1:3, :2]) and torch.empty(0, device="sim").set_().numel() == 0
    assert "sim:0" in repr(a)


def test_operators(one):
    one.checked(_operators)


def _second_device(rank):
    with torch.sim.device(1):
        a = torch.ones(3, device="sim")
        assert a.device.index == 1 and torch.sim.current_device() == 1
    assert torch.sim.current_device() == 0 and torch.sim.device_count() == 2
    b = torch.full((3,), 2.0, device="sim:0")
    with pytest.raises(RuntimeError, match="sim:1 and sim:0"):
        a + b
    assert (a + b.to("sim:1")).tolist() == [3, 3, 3]
    b.zero_()  # comes after the copy
    with pytest.raises(RuntimeError, match="there is no device sim:2"):
        torch.sim.set_device(2)


def test_second_device(one):
    one.checked(_second_device)


def _training(rank, optimizer):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Flatten(), torch.nn.Linear(32, 16),
                                torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Dropout(0.0), torch.nn.Linear(16, 3))
    models = {"cpu": model, "sim": copy.deepcopy(model).to("sim")}
    optimizers = {d: getattr(torch.optim, optimizer)(m.parameters(), lr=0.05) for d, m in models.items()}
    for _ in range(3):
        x, y = torch.randint(0, 10, (5, 4)), torch.randint(0, 3, (5,))
        losses = {}
        for device, m in models.items():
            optimizers[device].zero_grad()
            losses[device] = torch.nn.functional.cross_entropy(m(x.to(device)), y.to(device))
            losses[device].backward()
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            optimizers[device].step()
        close(losses["sim"], losses["cpu"])
    for p, q in zip(models["sim"].parameters(), models["cpu"].parameters(), strict=True):
        close(p, q)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_training_step_equals_that_of_the_cpu(one, optimizer):
    one.checked(_training, optimizer)


def _transformer(rank):
    torch.manual_seed(4)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    same = copy.deepcopy(layer).to("sim")
    x = torch.randn(2, 5, 16)
    layer(x).sum().backward()
    same(x.to("sim")).sum().backward()
    for p, q in zip(same.parameters(), layer.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)


def test_transformer(one):
    one.checked(_transformer)


def _held(rank):
    a, b = torch.ones(1000, device="sim"), torch.zeros(1000, device="sim")
    torch.sim.synchronize()
    side = torch.sim.Stream()
    ahead, behind = torch.sim.Event(), torch.sim.Event()
    ahead.record()
    ahead.synchronize()
    with sim.held():
        b.copy_(a)
        behind.record()
        side.wait_event(behind)
        with torch.sim.stream(side):
            c = b.clone()  # a copy, too
            assert torch.sim.current_stream() == side
        assert torch.sim.current_stream() == torch.sim.default_stream()
        assert ahead.query() and not behind.query() and not torch.sim.current_stream().query() and not side.query()
        assert "is held by the test" in sim.blocked()
    behind.synchronize()
    side.synchronize()
    assert behind.query() and c.tolist() == [1.0] * 1000
    torch.sim.current_stream().wait_stream(side)  # c is freed in the order of side


def test_held_stream_does_not_hold_the_host(one):
    one.checked(_held)


def _handles(rank):
    """Streams from the pool are different ones, with handles that the driver knows."""
    streams = {torch.sim.Stream(priority=p).stream_id for p in (0, -1) for _ in range(20)}
    assert len(streams) == 40 and 0 not in streams
    for s in (torch.sim.default_stream(), torch.sim.Stream()):
        if hasattr(s, "native_handle"):
            assert s.native_handle == s.stream_id
        assert s.query()


def test_handles(one):
    one.checked(_handles)


def _unordered(rank, ordered):
    a = torch.ones(1000, device="sim")
    side = torch.sim.Stream()
    if ordered:
        side.wait_stream(torch.sim.current_stream())
    with torch.sim.stream(side):
        b = a * 2
    if ordered:
        torch.sim.current_stream().wait_stream(side)
    a.zero_()
    torch.sim.synchronize()
    found = sim.reports()
    sim.forget()
    del b
    return found


def test_races_are_reported(one):
    [found] = one.run(_unordered, False)
    # The product races with what fills its operand, unless the host has learned that this has ended, and with zero_.
    races = [r for r in found if r.startswith("race: ") and "in aten::mul.out" in r]
    assert any("in aten::fill_" in r or "in aten::zero_" in r for r in races), found
    assert one.run(_unordered, True) == [[]]


def _host_learns_nothing(rank):
    """The host has waited for a kernel, as it always does here, but not on a GPU."""
    a = torch.ones(8, device="sim")
    torch.sim.synchronize()
    side = torch.sim.Stream()
    with torch.sim.stream(side):
        a.add_(1)
    a.add_(1)
    unordered = sim.reports()
    sim.forget()
    side.synchronize()  # that does it
    a.add_(1)
    torch.sim.synchronize()
    with torch.sim.stream(side):
        a.add_(1)
    assert a.tolist() != [] and len(unordered) == 1 and unordered[0].startswith("race: "), unordered
    sim.forget()


def test_kernels_are_not_known_to_have_ended(one):
    one.run(_host_learns_nothing)


def _freed_early(rank, recorded):
    a, source = torch.ones(4096, device="sim"), torch.zeros(4096, device="sim")
    torch.sim.synchronize()
    at, side = a.data_ptr(), torch.sim.Stream()
    with sim.held(side):
        with torch.sim.stream(side):
            source.copy_(a)
        if recorded:
            a.record_stream(side)
        del a
        again = torch.empty(4096, device="sim")
        reused = again.data_ptr() == at
        torch.sim.default_stream().synchronize()  # what overwrites it has ended
    side.synchronize()
    found = sim.reports()
    sim.forget()
    intact = bool((source == 1).all())
    del again
    after = torch.empty(4096, device="sim"), torch.empty(4096, device="sim")
    return reused, found, intact, at in {t.data_ptr() for t in after}


def test_memory_that_is_freed_early_is_reused_and_reported(one):
    [(reused, found, intact, _)] = one.run(_freed_early, False)
    assert reused and any(r.startswith("race: ") and "writes in free" in r for r in found), found
    assert not intact, "what is freed is overwritten"


def test_memory_recorded_on_a_stream_is_not_reused_early(one):
    [(reused, found, intact, later)] = one.run(_freed_early, True)
    assert not reused and found == [] and intact and later


def _lost(rank):
    a = torch.ones(3, device="sim:1")
    sim.lose(1)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_LAUNCH_FAILED"):
        a.add_(1)


def test_lost_device(one):
    one.checked(_lost)  # the last test of this process that uses its second device


def _faults(rank):
    a = torch.ones(3, device="sim")
    sim.set_faults(Fail=[{"Call": "cuLaunchKernel", "Nth": 2, "Code": 2}])
    a.add_(1)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        a.add_(1)
    assert a.tolist() == [2, 2, 2] and sim.calls("cuLaunchKernel") >= 3
    sim.set_faults()


def test_faults(one):
    one.checked(_faults)


def _host_group(rank):
    """The group's CPU side works beside the device."""
    import torch.distributed as dist

    t = torch.full((4,), float(rank + 1))
    dist.all_reduce(t)
    begin = time.monotonic()
    dist.barrier()
    return t.tolist(), time.monotonic() - begin < 20


def test_groups_on_the_host(pair):
    assert pair.checked(_host_group) == [([3.0] * 4, True)] * 2
