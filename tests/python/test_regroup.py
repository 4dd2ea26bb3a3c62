"""Groups made from a group: split, merge, shrink, reconfigure; and their options."""
import copy

import pytest
import torch
import torch.distributed as dist
from common import seconds, since
from rank_pool import RankPool

import goccl

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Four ranks without a group, for tests that make one."""
    pool = RankPool(4, tmp_path_factory.mktemp("bare"), group=False)
    yield pool
    pool.close()


def total(group, value):
    t = torch.tensor([float(value)])
    dist.all_reduce(t, group=group)
    return t.item()


def check_split(rank):
    """Splits in another order, and from a group in another order; rank 1 is left out."""
    group = dist.split_group(split_ranks=[[2, 0]], timeout=seconds(21), group_desc="ends")
    if rank == 1:
        assert group is dist.GroupMember.NON_GROUP_MEMBER
    else:
        backend = group._get_backend(CPU)
        assert dist.get_process_group_ranks(group) == [2, 0] and group.rank() == {2: 0, 0: 1}[rank]
        assert group.group_desc == "ends" and backend.options.group_name == group.group_name
        assert backend.options._timeout == seconds(21) and backend.options.global_ranks_in_group == [2, 0]
        assert total(group, rank) == 2.0
        t = torch.tensor([float(rank)])
        dist.broadcast(t, 2, group=group)
        assert t.item() == 2.0
        dist.destroy_process_group(group)
    parent = dist.group.WORLD._get_backend(CPU).options
    assert parent._timeout == seconds(20) and not parent.global_ranks_in_group  # a child has a copy
    parts = dist.split_group(split_ranks=[[1], [2, 0]])
    assert total(parts, 1) == (1.0 if rank == 1 else 2.0)
    # Splits a child group: the given ranks are those of the child, and the ranks of the whole job are kept.
    again = dist.split_group(parts, split_ranks=[[0]] if rank == 1 else [[1], [0]])
    assert dist.get_process_group_ranks(again) == [rank] and total(again, rank) == rank
    assert again._get_backend(CPU).options.global_ranks_in_group == [rank]
    dist.barrier()


@since((2, 15), "split_group splits groups of the CPU from torch 2.15 on")
def test_split(trio):
    trio.run(check_split)


def check_split_options(rank):
    given = goccl.Options(timeout=7, transport="tcp").native()
    group = dist.split_group(split_ranks=[[0, 1, 2]], pg_options=given, timeout=seconds(30))
    options = group._get_backend(CPU).options
    assert "GOCCL_TRANSPORT=tcp" in options.lines.split("\n") and options._timeout == seconds(7)
    assert total(group, rank) == 3.0
    with pytest.raises(TypeError, match="must be goccl's own"):
        dist.split_group(split_ranks=[[0, 1, 2]], pg_options=torch._C._distributed_c10d.Backend.Options("other"))
    with pytest.raises(ValueError, match="is no rank of this group of 3"):
        dist.group.WORLD.split_group([0, 7])
    dist.barrier()


@since((2, 15), "split_group splits groups of the CPU from torch 2.15 on")
def test_split_options(trio):
    trio.run(check_split_options)


def check_backend_split(rank):
    """The call that split_group makes exists in every version; in older ones the options are the parent's own."""
    backend = dist.group.WORLD._get_backend(CPU)
    assert backend.supports_splitting and backend.supports_shrinking
    backend.perform_nocolor_split(CPU)
    backend.eager_connect_single_device(CPU)
    a = backend.options
    for b in (copy.copy(a), copy.deepcopy(a)):
        names = ("lines", "told", "_timeout", "backend", "group_name", "global_ranks_in_group")
        assert all(getattr(a, n) == getattr(b, n) for n in names)
        b.lines, b.group_name = "GOCCL_DEBUG=INFO", "other"
        assert a.lines != b.lines and a.group_name != b.group_name


def test_options_copy(trio):
    trio.run(check_backend_split)


def check_mesh(rank):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert mesh["dp"].get_group().size() == 2 and total(mesh["tp"].get_group(), rank) == (1.0 if rank < 2 else 5.0)
    assert total(mesh["dp"].get_group(), rank) == 2.0 + 2 * (rank % 2)
    assert total(mesh._flatten().get_group(), 1) == 4.0


def check_bound_device(rank, folder):
    """With a bound device torch makes new groups by splitting where it can, and informs the ranks that are left out."""
    store = dist.FileStore(f"{folder}/bound")
    dist.init_process_group("goccl", store=store, rank=rank, world_size=4, device_id=torch.device("cpu:0"),
                            timeout=seconds(30))
    group = dist.new_group([1, 3])
    if rank in (1, 3):
        assert total(group, rank) == 4.0
    check_mesh(rank)
    dist.destroy_process_group()


@since((2, 15), "groups are bound to accelerators only, before torch 2.15")
def test_device_mesh_with_a_bound_device(bare, tmp_path):
    bare.run(check_bound_device, str(tmp_path))


def check_merge(rank, folder):
    """Two groups that do not know each other become one, over a store that both can reach."""
    half = dist.new_group([rank])
    store = dist.FileStore(f"{folder}/merge")
    merged = half.merge_remote_group(store, 3, timeout=seconds(20), group_name="merged", group_desc="all")
    assert merged.size() == 3 and merged.group_name == "merged"
    work = merged.allreduce([t := torch.tensor([float(rank)])])
    work.wait()
    assert t.item() == 3.0
    assert merged._get_backend(CPU).options._timeout == seconds(20)
    merged.shutdown()
    dist.destroy_process_group(half)


def test_merge(trio, tmp_path):
    trio.run(check_merge, str(tmp_path))


def check_reconfigure(rank, folder):
    """The group has no members at first; then all ranks; then all but one, in another order.

    A set is ordered by the ranks.
    """
    store = dist.FileStore(f"{folder}/reconfigure")
    dist.init_process_group("goccl", store=dist.PrefixStore("world", store), rank=rank, world_size=4,
                            timeout=seconds(20), enable_reconfigure=True)
    group = dist.group.WORLD
    backend = group._get_backend(CPU)
    with pytest.raises(dist.DistBackendError, match="call reconfigure first"):
        dist.all_reduce(torch.ones(1))

    def handles(number, ranks):
        own = group.get_reconfigure_handle()
        assert own == group.get_reconfigure_handle()
        store.set(f"{number}/{rank}", own)
        return [store.get(f"{number}/{r}").decode() for r in ranks]

    dist.distributed_c10d._reconfigure(1, set(handles(1, range(4)))).wait()
    assert group.rank() == rank and group.size() == 4 and total(group, 1) == 4.0
    with pytest.raises(ValueError, match="uuid 1 was used before"):
        dist.distributed_c10d._reconfigure(1, handles("1 again", range(4)))
    if rank == 1:
        with pytest.raises(ValueError, match="is not among the 3 given"):
            dist.distributed_c10d._reconfigure(3, handles(2, [3, 2, 0]))
    else:
        dist.distributed_c10d._reconfigure(2, handles(2, [3, 2, 0]), timeout=seconds(19)).wait()
        assert backend.size() == 3 and backend.rank() == {3: 0, 2: 1, 0: 2}[rank]
        t = torch.tensor([float(rank)])
        group.broadcast(t, 0).wait()
        assert t.item() == 3.0 and backend.options._timeout == seconds(20)
    with pytest.raises(ValueError, match="is no handle of a goccl group"):
        dist.distributed_c10d._reconfigure(9, ["gloo:0"])
    dist.destroy_process_group()


@since((2, 14), "reconfigure came with torch 2.14")
def test_reconfigure(bare, tmp_path):
    bare.run(check_reconfigure, str(tmp_path))


def check_shrink(rank, folder):
    store = dist.FileStore(f"{folder}/shrink")
    dist.init_process_group("goccl", store=store, rank=rank, world_size=4, timeout=seconds(20))
    backend = dist.group.WORLD._get_backend(CPU)
    with pytest.raises(ValueError, match="unknown flags 6"):
        backend.shrink([1], 6)
    if rank == 1:
        with pytest.raises(ValueError, match="only those that stay call this"):
            backend.shrink([1])
        pending = dist.all_reduce(torch.ones(1), async_op=True)
        # The error of the abort, or of the operation after it.
        with pytest.raises(dist.DistBackendError, match="made anew without ranks|left"):
            pending.wait()
    else:
        kept = dist.shrink_group([1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
        assert kept.size() == 3 and kept.rank() == [0, 2, 3].index(rank)
        assert total(kept, rank) == 5.0
        assert kept._get_backend(CPU).options.global_ranks_in_group == [0, 2, 3]
        with pytest.raises(dist.DistBackendError, match="was shut down"):
            backend.barrier()
    dist.destroy_process_group()


def test_shrink(bare, tmp_path):
    bare.run(check_shrink, str(tmp_path))


def test_default_backend(python):
    out = python("""
        import goccl, torch, torch.distributed as dist
        goccl.use_by_default()
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        print(dist.group.WORLD._get_backend(torch.device("cpu")).name())
        dist.destroy_process_group()
    """)
    assert "goccl" in out.splitlines()  # torch before 2.14 warns as well


def test_options_that_cannot_be(python):
    python("""
        import datetime, goccl, pytest, torch, torch.distributed as dist
        from torch.distributed import HashStore
        def make(options):
            dist.init_process_group("goccl", store=HashStore(), rank=0, world_size=1, pg_options=options)
        for bad in (goccl.Options(transport="carrier pigeon"), goccl.Options(extra={"GOCCL_NO_SUCH": "1"}), goccl.Options(timeout=-1)):
            with pytest.raises(ValueError, match="goccl|GOCCL|transport"):
                make(bad)
        with pytest.raises(TypeError, match="must be a goccl.Options or None"):
            make("fast")
    """)
