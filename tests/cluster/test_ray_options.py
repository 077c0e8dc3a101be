"""`guerdon.Ray`, without Ray: what is refused where it is written."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from guerdon import Ray, RegistrationError


def test_omitted_options_are_left_to_the_cluster() -> None:
    ray = Ray()
    assert (ray.address, ray.nodes, ray.cpus_per_node, ray.reserve, ray.idle_timeout) == (None, None, None, True, None)
    assert ray.start_timeout == 60.0


def test_values_are_kept_as_plain_ones() -> None:
    ray = Ray(nodes=["a", "10.0.0.2"], cpus_per_node=np.int64(4), start_timeout=np.float32(2))
    assert ray.nodes == ("a", "10.0.0.2")
    assert (type(ray.cpus_per_node), type(ray.start_timeout)) == (int, float)
    assert pickle.loads(pickle.dumps(ray)) == ray
    with pytest.raises(FrozenInstanceError):
        ray.nodes = None  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"address": ""}, "an address such as"),
        ({"address": 6379}, "an address such as"),
        ({"address": "ray://head:10001"}, "Ray Client"),
        ({"nodes": 0}, "from 1 to"),
        ({"nodes": True}, "how many nodes, or a list"),
        ({"nodes": "node-1"}, "how many nodes, or a list"),
        ({"nodes": []}, "how many nodes, or a list"),
        ({"nodes": ["a", 3]}, "how many nodes, or a list"),
        ({"nodes": ["a", "a"]}, "each node once"),
        ({"cpus_per_node": 0}, "from 1 to 4096"),
        ({"cpus_per_node": 1.5}, "from 1 to 4096"),
        ({"cpus_per_node": 5000}, "from 1 to 4096"),
        ({"reserve": 1}, "True or False"),
        ({"reserve": False}, "Give cpus_per_node="),
        ({"start_timeout": 0}, "seconds"),
        ({"start_timeout": float("inf")}, "seconds"),
        ({"idle_timeout": -1}, "seconds"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_do(options: dict[str, object], expected: str) -> None:
    with pytest.raises(RegistrationError, match=r"Ray\(") as caught:
        Ray(**options)  # type: ignore[arg-type]
    assert expected in str(caught.value)


def test_importing_it_loads_neither_ray_nor_numpy() -> None:
    code = "import sys, guerdon; guerdon.Ray(nodes=2); print({'ray', 'numpy', 'cloudpickle'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
