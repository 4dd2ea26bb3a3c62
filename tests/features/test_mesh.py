"""DeviceMesh of 1 to 3 dimensions: its groups, slices, flattened dimensions, and meshes made of groups."""
import pytest
import torch
import torch.distributed as dist
from reference import mesh
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def members(group):
    """Returns the global ranks of the group, from the group itself."""
    out = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(out, torch.tensor([dist.get_rank()]), group=group)
    return [t.item() for t in out]


def check_dimensions(rank):
    line = mesh(4)
    assert members(line.get_group()) == [0, 1, 2, 3] and line.get_local_rank() == rank and line.size() == 4
    grid = mesh(2, 2, names=("rows", "columns"))
    assert grid.get_coordinate() == [rank // 2, rank % 2] or tuple(grid.get_coordinate()) == (rank // 2, rank % 2)
    assert members(grid.get_group("rows")) == [rank % 2, rank % 2 + 2]
    assert members(grid.get_group("columns")) == [rank // 2 * 2, rank // 2 * 2 + 1]
    assert ([members(group) for group in grid.get_all_groups()]
            == [members(grid.get_group(0)), members(grid.get_group(1))])
    assert all(dist.get_backend(group) == "goccl" for group in grid.get_all_groups())
    with pytest.raises((RuntimeError, ValueError), match="mesh dimension|mesh_dim"):
        grid.get_group()  # ambiguous: there are two groups
    with pytest.raises((RuntimeError, KeyError, ValueError), match="other"):
        grid["other"]

    cube = mesh(2, 1, 2, names=("a", "b", "c"))
    assert [len(members(group)) for group in cube.get_all_groups()] == [2, 1, 2]
    assert (cube.get_local_rank("a") == rank // 2 and cube.get_local_rank("c") == rank % 2
            and cube.get_local_rank("b") == 0)
    ac = cube["a", "c"]
    assert ac.shape == (2, 2) and ac.mesh_dim_names == ("a", "c")
    assert members(ac.get_group("a")) == members(cube.get_group("a"))
    assert members(cube["c"].get_group()) == members(cube.get_group("c"))


def test_dimensions_and_slices(quartet):
    quartet.run(check_dimensions)


def check_flatten(rank):
    cube = mesh(2, 1, 2, names=("a", "b", "c"))
    flat = cube["a", "b"]._flatten("ab")
    assert flat.size() == 2 and members(flat.get_group()) == [rank % 2, rank % 2 + 2]
    assert members(cube["ab"].get_group()) == members(flat.get_group())
    everyone = cube._flatten("all")
    assert members(everyone.get_group()) == [0, 1, 2, 3]
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, group=everyone.get_group())
    assert t.item() == 6.0


def test_flatten(quartet):
    quartet.run(check_flatten)


def check_from_groups(rank):
    """Meshes of existing groups, and of ranks in another order."""
    whole = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    assert whole.mesh.tolist() == [0, 1, 2, 3] and whole.get_group() is dist.group.WORLD
    rows, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    columns, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])
    grid = DeviceMesh.from_group([rows, columns], "cpu", mesh=torch.arange(4).view(2, 2), mesh_dim_names=("r", "c"))
    assert grid.get_group("r") is rows and grid.get_group("c") is columns
    assert members(grid["r"].get_group()) == [rank % 2, rank % 2 + 2]
    # A mesh with a group of another backend.
    gloo = dist.new_group(backend="gloo")
    other = DeviceMesh.from_group(gloo, "cpu")
    assert dist.get_backend(other.get_group()) == "gloo" and members(other.get_group()) == [0, 1, 2, 3]

    turned = DeviceMesh("cpu", torch.tensor([[3, 1], [0, 2]]), mesh_dim_names=("x", "y"))
    assert sorted(members(turned.get_group("x"))) == ([0, 3] if rank in (0, 3) else [1, 2])
    assert sorted(members(turned.get_group("y"))) == ([1, 3] if rank in (1, 3) else [0, 2])
    part = DeviceMesh("cpu", [1, 2])
    if rank in (1, 2):
        assert members(part.get_group()) == [1, 2]
    else:
        assert part.get_coordinate() is None
    dist.barrier()


def test_meshes_of_groups(quartet):
    quartet.run(check_from_groups)


def check_refused(rank):
    with pytest.raises((ValueError, RuntimeError), match="should not exceed|must be|larger|greater|world size"):
        init_device_mesh("cpu", (3, 2))
    with pytest.raises((ValueError, RuntimeError), match="mesh_dim_names|unique"):
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "a"))
    dist.barrier()


def test_wrong_shapes(quartet):
    quartet.run(check_refused)
