"""Tensors in registered memory, which ranks of one host read in place."""
import gc

import pytest
import torch
import torch.distributed as dist

import goccl


def check_empty(rank):
    for size, made in (((), goccl.empty()), ((3,), goccl.empty(3)), ((2, 3), goccl.empty(2, 3)),
                       ((4, 5), goccl.empty((4, 5))),
                       ((2, 0), goccl.empty(torch.Size([2, 0])))):
        assert made.shape == size and made.dtype == torch.float32 and made.device.type == "cpu" and made.is_contiguous()
        assert not made.requires_grad
    tensor = goccl.empty(1000, dtype=torch.bfloat16, requires_grad=True)
    assert tensor.requires_grad and tensor.dtype == torch.bfloat16
    first = goccl.empty(1 << 20)
    first.fill_(7)
    view, place = first[3:], first.data_ptr()
    del first
    assert goccl.empty(1 << 20).data_ptr() != place, "a view keeps the memory"
    assert view.sum() == 7 * ((1 << 20) - 3)
    del view
    gc.collect()
    assert goccl.empty(1 << 20).data_ptr() == place, "what was given back is given out again"
    grown = goccl.empty(10)
    grown.fill_(1)
    grown.resize_(1 << 16)
    assert grown[:10].sum() == 10
    try:
        goccl.empty(1 << 44)
    except ValueError as e:
        assert "GOCCL_REGISTERED" in str(e), e
    else:
        raise AssertionError("more than there is room for")


def check_collectives(rank):
    count, ranks = 300_001, 3

    def tensor(size, registered, shift=3):
        memory = goccl.empty(size + shift) if registered else torch.empty(size + shift)
        return memory[shift:]

    for name, registered in {"none": [], "all": [0, 1, 2], "first": [0], "others": [1, 2]}.items():
        mine = rank in registered
        for _ in range(3):
            given = [torch.arange(ranks * count, dtype=torch.float32) % 1000 + r for r in range(ranks)]
            x = tensor(count, mine)
            x.copy_(given[rank][:count])
            dist.all_reduce(x)
            assert torch.equal(x, sum(t[:count] for t in given)), name
            gathered = tensor(ranks * count, mine)
            dist.all_gather_into_tensor(gathered, given[rank][:count])
            assert torch.equal(gathered, torch.cat([t[:count] for t in given])), name
            gathered.zero_()
            own = gathered[rank * count:(rank + 1) * count]  # in place
            own.copy_(given[rank][:count])
            dist.all_gather_into_tensor(gathered, own)
            assert torch.equal(gathered, torch.cat([t[:count] for t in given])), name
            whole, part = tensor(ranks * count, mine), tensor(count, mine, 1)
            whole.copy_(given[rank])
            dist.reduce_scatter_tensor(part, whole)
            assert torch.equal(part, sum(given)[rank * count:(rank + 1) * count]), name
            swapped = tensor(ranks * count, mine)
            dist.all_to_all_single(swapped, whole)
            assert torch.equal(swapped, torch.cat([t[rank * count:(rank + 1) * count] for t in given])), name
            works = []
            for root in range(ranks):
                works.append((root, tensor(count, mine)))
                works[-1][1].fill_(rank)
            for work, root, t in [(dist.broadcast(t, root, async_op=True), root, t) for root, t in works]:
                work.wait()
                assert torch.equal(t, torch.full((count,), float(root))), name


def check_fsdp(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    made = backend.allocate_tensor(1000, dtype=torch.float64, device=torch.device("cpu"))
    assert made.shape == (1000,) and made.dtype == torch.float64
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    results = []
    for registered in (False, True):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(300, 301), torch.nn.Linear(301, 300))
        for layer in [*model, model]:
            fully_shard(layer, mesh=mesh)
            if registered and isinstance(layer, FSDPModule):
                if not hasattr(layer, "set_allocate_memory_from_process_group_for_comm"):
                    return  # torch before 2.9
                layer.set_allocate_memory_from_process_group_for_comm(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            torch.manual_seed(rank)
            model(torch.randn(8, 300)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append([p.to_local().detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def check_ddp(rank):
    torch.manual_seed(2)
    plain = torch.nn.Linear(500, 400)
    registered = torch.nn.Linear(500, 400)
    for mine, theirs in zip(registered.parameters(), plain.parameters()):
        memory = goccl.empty(theirs.shape)
        mine.data = memory.copy_(theirs.data)
    torch.manual_seed(10 + rank)
    given = torch.randn(16, 500)
    for model in (plain, registered):
        torch.nn.parallel.DistributedDataParallel(model)(given).square().mean().backward()
    for mine, theirs in zip(registered.parameters(), plain.parameters()):
        assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.parametrize("check", [check_empty, check_collectives, check_fsdp, check_ddp])
def test_registered(trio, check):
    trio.run(check)


def test_functions_for_pools_of_cuda(python):
    """The functions that torch's allocator for CUDA has memory from are found in the library, and give none here."""
    if not hasattr(torch._C, "_cuda_customAllocator"):
        pytest.skip("this torch has no CUDA, and so no allocator to plug them into")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, which would give memory")
    out = python("""
        import ctypes
        import goccl, torch
        from goccl import _loader
        path = _loader.core().library_path()
        names = "goccl_device_alloc", "goccl_device_free"
        print(type(torch.cuda.memory.CUDAPluggableAllocator(path, *names).allocator()).__name__)
        alloc = getattr(ctypes.CDLL(path), names[0])
        alloc.restype = ctypes.c_void_p
        print(alloc(ctypes.c_ssize_t(100), 0, None))
    """)
    assert "_CUDAPluggableAllocator" in out.split() and "None" in out.split(), out


# Memory outlives groups, and the end of the interpreter causes no error. A fork sees the memory and does not free it.
def test_life(python):
    out = python("""
        import os, sys
        import torch
        import torch.distributed as dist
        import goccl

        early = goccl.empty(100_000)
        early.fill_(3)
        dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
        late = goccl.empty(100_000)
        late.fill_(4)
        dist.all_reduce(late)
        dist.destroy_process_group()
        child = os.fork()
        if child == 0:
            code = 0 if early[-1].item() == 3 else 1
            try:
                goccl.empty(5)
                code = 2
            except RuntimeError as e:
                code = code or (0 if "fork" in str(e) else 3)
            del early, late
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert early.sum() == 300_000 and late.sum() == 400_000
        del early
        again = goccl.empty(100_000)
        print("well", end="")
    """)
    assert out == "well"


def test_none(python):
    out = python("""
        import os
        os.environ["GOCCL_REGISTERED"] = "0"
        import torch
        import torch.distributed as dist
        import goccl
        try:
            goccl.empty(5)
        except NotImplementedError as e:
            print(e)
        dist.init_process_group("goccl", store=dist.HashStore(), rank=0, world_size=1)
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu")).shape == (1000,)
        dist.destroy_process_group()
    """)
    assert "GOCCL_REGISTERED=0" in out
