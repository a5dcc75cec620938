from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_model import make_tiny_model

from sumone.models.local import LocalModel


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def local(tiny_folder: Path) -> LocalModel:
    return LocalModel(str(tiny_folder), batch_size=16, dtype="auto")
