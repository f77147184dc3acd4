import pytest

from partita_policies import GPU, Job, Node, Profile, Step
from partita_research.simulator.openb import (
    GPU_MEMORY,
    TraceError,
    TraceTask,
    cluster_of,
    job_of,
    read_nodes,
    read_tasks,
    simulated,
)

GIB = 2**30
NODES = "sn,cpu_milli,memory_mib,gpu,model\nnode-a,64000,262144,2,P100\nnode-b,8000,32768,0,\n"
PLAIN = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
FULL = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "trace.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_nodes_become_idle_gpus_and_hosts(file):
    gpus, nodes = cluster_of(read_nodes(file(NODES)))
    assert nodes == (Node("node-a", 64000, 256 * GIB), Node("node-b", 8000, 32 * GIB))
    assert gpus == tuple(
        GPU(f"node-a-{n}", "node-a", GPU_MEMORY, 1000, 1000, "P100") for n in range(2)
    )


def test_tasks_are_read_with_products_and_times_or_without(file):
    row = "t,12000,16384,1,460,V100M16|V100M32,LS,Running,10,500,40\n"
    assert read_tasks(file(FULL + row)) == (
        TraceTask(
            *("t", 12000, 16 * GIB, 1, 460, ("V100M16", "V100M32")),
            created=10.0,
            scheduled=40.0,
            deleted=500.0,
        ),
    )
    assert read_tasks(file(PLAIN + "t,1,1024,8,1000\n\n")) == (TraceTask("t", 1, GIB, 8, 1000),)


def test_a_byte_order_mark_and_other_line_ends_do_no_harm(file):
    text = "\ufeff" + PLAIN + "t,1,1024,0,0\n"
    assert len(read_tasks(file(text.replace("\n", "\r\n")))) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: expected the columns name, .*; lacking name"),
        ("name,cpu_milli\n", ":1: expected the columns .*; lacking memory_mib, num_gpu, gpu_milli"),
        (PLAIN + "t,1,1,0\n", ":2: expected 5 fields"),
        (PLAIN + "t,1,1,0,0\nt,x,1,0,0\n", ":3: cpu_milli: 'x' should be a valid integer"),
        (PLAIN + ",1,1,0,0\n", ":2: name: String should have at least 1 character"),
        (PLAIN + "t,1,1,1,0\n", ":2: gpu_milli: expected 1 to 1000 of a task with a GPU"),
        (PLAIN + "t,1,1,2,500\n", ":2: gpu_milli: expected 1000 of a task with several GPUs"),
        (PLAIN + "t,1,1,0,5\n", ":2: gpu_milli: expected 0 of a task without a GPU"),
        (FULL + "t,1,1,0,0,,,,5,4,\n", ":2: deletion_time: expected a time after"),
        (PLAIN + 't,"1,1,0,0\n', ":2: expected CSV: unexpected end of data"),
        (PLAIN.encode() + b"\xff\xfe,1,1,0,0\n", "expected a CSV file in UTF-8"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(file, text, message):
    path = file(text)
    with pytest.raises(TraceError, match=message) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"no\.csv: expected a file that can be read"):
        read_nodes(tmp_path / "no.csv")


def test_a_share_of_a_gpu_is_a_share_of_its_memory():
    task = TraceTask("t", 4000, GIB, 1, 250, ("T4",), created=5.0, deleted=25.0)
    assert job_of(task, "id", 7.0) == Job(
        *("id", "t", "openb", GPU_MEMORY // 4),
        duration=20.0,
        submitted=7.0,
        cpu=4000,
        host_memory=GIB,
        products=("T4",),
    )


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({"created": 5.0, "scheduled": 10.0, "deleted": 25.0}, 15.0),
        ({"created": 5.0, "deleted": 25.0}, 20.0),
        ({"created": 5.0, "deleted": 5.0}, 1.0),
        ({"created": 5.0}, None),
        ({}, None),
    ],
)
def test_a_task_lasts_from_its_start_to_its_end(times, seconds):
    assert TraceTask("t", 1, 1, 1, 100, **times).duration == seconds


def test_a_task_uses_the_share_that_it_asked_for_all_the_time():
    found = simulated(TraceTask("t", 4000, GIB, 1, 250, created=0.0, deleted=60.0), "t-0", 5.0)
    step = Step(25.0, GPU_MEMORY // 4)
    assert (found.job.id, found.job.submitted) == ("t-0", 5.0)
    assert found.truth.steps == (step,)
    assert found.job.profile == Profile("t", 60.0, (step,))
