from __future__ import annotations

import contextlib
import datetime
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from anabranch.errors import StateDamaged
from anabranch.model import HASH, RunRef
from anabranch.state import RunFiles, Store, open_store, runs
from anabranch.state.copies.hot import HotCopies, open_hot_copies
from unit.state.builders import run_files, unwindowed, windowed

ROWS = [(0, 5, 1), (0, 9, 2), (10, 3, 3), (10, 7, 4), (20, 1, 5)]


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test stands for a process that has read nothing yet."""
    monkeypatch.setattr(runs, "_verified", {})


def path_of(store: Store, ref: RunRef) -> Path:
    path = store.local_path(ref.file)
    assert path is not None
    return path


def test_a_run_is_read_as_it_was_written(store: Store) -> None:
    files = run_files(store, batch=7, epoch=3)
    ref = files.write(windowed(ROWS))
    assert_frame_equal(files.read(ref), windowed(ROWS))
    assert (ref.rows, ref.batch, ref.min_window, ref.max_window) == (5, 7, 0, 20)
    assert ref.bytes == len(store.read(ref.file))


def test_names_carry_epoch_batch_attempt_and_the_random_id(store: Store) -> None:
    ref = run_files(store, batch=7, epoch=3).write(windowed(ROWS))
    assert ref.file.startswith("state/0/0/e000003-b000000000007-a0-cafe-0-")


def test_two_runs_of_one_writer_have_two_files(store: Store) -> None:
    files = run_files(store)
    assert files.write(windowed(ROWS)).file != files.write(windowed(ROWS)).file


def test_attempts_with_other_bytes_do_not_overwrite_each_other(store: Store) -> None:
    first = run_files(store).write(unwindowed([(1, 1)]))
    second = run_files(store).write(unwindowed([(1, 2)]))
    assert run_files(store).read(first)["value"].to_list() == [1]
    assert run_files(store).read(second)["value"].to_list() == [2]


def test_rows_before_the_first_live_one_are_not_read(store: Store) -> None:
    files = run_files(store)
    ref = files.write(windowed(ROWS))
    assert_frame_equal(files.read(replace(ref, first_live=2)), windowed(ROWS[2:]))


def test_every_type_of_column_survives(store: Store) -> None:
    frame = pl.DataFrame(
        {
            HASH: pl.Series([1, 2, 3], dtype=pl.UInt64),
            "enum": pl.Series(["b", "a", None], dtype=pl.Enum(["b", "a", "c"])),
            "decimal": pl.Series([Decimal("1.20"), None, Decimal("-3.45")], dtype=pl.Decimal(20, 2)),
            "best": [[{"by": 1.5, "name": "x"}], [], None],
            "sketch": [b"", None, b"\x00" * 40],
            "text": ["short", None, "a text that is too long to be kept inline"],
            "date": [datetime.date(2020, 2, 29), None, datetime.date(1969, 12, 31)],
            "at": pl.Series([0, None, -1], dtype=pl.Datetime("us", "Europe/Berlin")),
            "lasted": pl.Series([0, None, -1], dtype=pl.Duration("ms")),
            "flag": [True, None, False],
            "nothing": [None, None, None],
            "small": pl.Series([1, None, 255], dtype=pl.UInt8),
            "ratio": pl.Series([float("nan"), None, float("-inf")], dtype=pl.Float32),
        }
    )
    files = run_files(store)
    assert_frame_equal(files.read(files.write(frame)), frame)


def test_integers_of_128_bits_survive(store: Store) -> None:
    frame = unwindowed([(1, 1)]).with_columns(wide=pl.lit(2**100, dtype=pl.Int128))
    files = run_files(store)
    assert_frame_equal(files.read(files.write(frame)), frame)


def test_a_slice_of_long_texts_takes_only_its_own_bytes(store: Store) -> None:
    frame = unwindowed([(key, key) for key in range(10_000)]).with_columns(
        text=pl.format("a text too long to be kept inline, number {}", "value")
    )
    assert run_files(store).write(frame.head(10)).bytes < 10_000


def test_equal_frames_give_equal_checksums_however_they_are_chunked(store: Store) -> None:
    whole = windowed(ROWS).with_columns(text=pl.lit("abc"))
    pieces = pl.concat([whole.head(2), whole.tail(3)], rechunk=False)
    assert run_files(store).write(whole).checksum == run_files(store).write(pieces).checksum


def test_an_unsorted_frame_is_refused_with_the_row(store: Store) -> None:
    unsorted = windowed(ROWS)[[0, 1, 3, 2, 4]]
    with pytest.raises(ValueError, match=r"sorted by \(__window, __hash\); row 3"):
        run_files(store).write(unsorted)
    with pytest.raises(ValueError, match=r"sorted by __hash; row 1"):
        run_files(store).write(unwindowed([(1, 1), (2, 2)]).reverse())


def test_a_frame_without_hashes_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="needs the column __hash"):
        run_files(store).write(pl.DataFrame({"value": [1]}))


def test_hashes_above_the_signed_range_are_in_order(store: Store) -> None:
    files = run_files(store)
    frame = unwindowed([(1, 1), (2**63, 2), (2**64 - 1, 3)])
    assert_frame_equal(files.read(files.write(frame)), frame)


def test_a_flipped_bit_is_found_on_the_first_read(store: Store) -> None:
    files = run_files(store)
    ref = files.write(windowed(ROWS))
    content = bytearray(store.read(ref.file))
    for position in range(0, len(content), 97):
        damaged = bytearray(content)
        damaged[position] ^= 4
        store.write(ref.file, bytes(damaged))
        with pytest.raises(StateDamaged, match=r"checksum crc32:.*its manifest says crc32:"):
            files.read(ref)


def test_a_truncated_file_is_found_even_after_it_was_checked(store: Store) -> None:
    files = run_files(store)
    ref = files.write(windowed(ROWS))
    files.read(ref)
    for length in (ref.bytes - 1, 1, 0):
        store.write(ref.file, store.read(ref.file)[:length])
        with pytest.raises(StateDamaged, match=f"has {length:,} bytes, its manifest says"):
            files.read(ref)


def test_a_missing_file_is_named(store: Store) -> None:
    files = run_files(store)
    ref = files.write(windowed(ROWS))
    store.delete([ref.file])
    with pytest.raises(StateDamaged, match=f"state file {ref.file} is missing"):
        files.read(ref)


def test_a_mapped_frame_outlives_its_file(local_store: Store) -> None:
    files = run_files(local_store)
    ref = files.write(windowed(ROWS))
    frame = files.read(ref)
    local_store.delete([ref.file])
    assert_frame_equal(frame, windowed(ROWS))


def test_only_one_generation_of_sources_is_kept(store: Store) -> None:
    files = run_files(store)
    first = files.write(unwindowed([(1, 1)]))
    second = files.write(unwindowed([(1, 1)]), [first])
    third = files.write(unwindowed([(1, 1)]), [second])
    assert third.made_from == (replace(second, made_from=()),)
    assert RunRef.from_json(third.to_json()) == third


class TestHotCopies:
    @pytest.fixture
    def far(self, tmp_path: Path) -> Store:
        return open_store(f"memory://far{tmp_path}")

    @pytest.fixture
    def hot(self, tmp_path: Path) -> HotCopies:
        hot = open_hot_copies("flow", 1, now_seconds=0.0, cap_bytes=10_000, parents=[tmp_path])
        assert hot is not None
        return hot

    def test_a_written_run_is_read_without_the_store(self, far: Store, hot: HotCopies) -> None:
        files = run_files(far, hot=hot)
        ref = files.write(windowed(ROWS))
        far.delete([ref.file])
        assert_frame_equal(files.read(ref), windowed(ROWS))

    def test_a_fetched_run_is_fetched_once(self, far: Store, hot: HotCopies) -> None:
        ref = run_files(far).write(windowed(ROWS))
        files = run_files(far, hot=hot)
        files.read(ref)
        far.delete([ref.file])
        assert_frame_equal(files.read(ref), windowed(ROWS))

    @pytest.mark.parametrize("damage", [b"", b"x", None])
    def test_a_damaged_copy_is_never_trusted(self, far: Store, hot: HotCopies, damage: bytes | None) -> None:
        files = run_files(far, hot=hot)
        ref = files.write(windowed(ROWS))
        copy = hot.find(ref.file)
        assert copy is not None
        if damage is None:
            content = bytearray(copy.read_bytes())
            content[len(content) // 2] ^= 1
            damage = bytes(content)
        copy.write_bytes(damage)
        assert_frame_equal(files.read(ref), windowed(ROWS))

    def test_a_checked_copy_does_not_vouch_for_the_store(self, far: Store, hot: HotCopies) -> None:
        files = run_files(far, hot=hot)
        ref = files.write(windowed(ROWS))
        files.read(ref)
        content = bytearray(far.read(ref.file))
        content[len(content) // 2] ^= 1
        far.write(ref.file, bytes(content))
        copy = hot.find(ref.file)
        assert copy is not None
        copy.unlink()
        with pytest.raises(StateDamaged):
            files.read(ref)

    def test_a_directory_that_hosts_share_is_copied_as_an_object_store_is(
        self, local_store: Store, hot: HotCopies
    ) -> None:
        files: RunFiles = run_files(local_store, hot=hot)
        ref = files.write(windowed(ROWS))
        files.read(ref)
        assert files.reads == {"hot": (1, ref.bytes)}
        path_of(local_store, ref).unlink()
        assert_frame_equal(files.read(ref), windowed(ROWS))

    def test_what_the_network_serves_is_packed_and_never_mapped(
        self, local_store: Store, hot: HotCopies, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = unwindowed([(number, 7) for number in range(400)])
        mappable = run_files(local_store).write(rows)
        mapped: list[Path] = []
        map_file = runs._map_file
        monkeypatch.setattr(runs, "_map_file", lambda path: (mapped.append(path), map_file(path))[1])
        files = run_files(local_store, hot=hot)
        assert files.write(rows).bytes < mappable.bytes
        # A run of before the copies, or of a host without memory for them, is fetched once.
        assert_frame_equal(files.read(mappable), rows)
        assert mapped == []
        assert_frame_equal(files.read(mappable), rows)
        assert mapped == [hot.find(mappable.file)]
        assert files.reads == {"store": (1, mappable.bytes), "hot": (1, mappable.bytes)}

    def test_the_least_recently_used_make_room(self, hot: HotCopies) -> None:
        for name in ("a", "b", "c"):
            hot.put(name, bytes(3_000))
        assert hot.find("a") is not None
        hot.put("d", bytes(3_000))
        assert [name for name in "abcd" if hot.find(name)] == ["a", "c", "d"]
        assert sum(path.stat().st_size for path in hot.folder.iterdir()) <= hot.cap_bytes

    def test_a_copy_larger_than_the_cap_is_not_kept(self, hot: HotCopies) -> None:
        hot.put("a", bytes(3_000))
        hot.put("huge", bytes(10_001))
        assert hot.find("huge") is None
        assert hot.find("a") is not None

    def test_a_new_epoch_sweeps_the_older_ones_of_its_flow(self, hot: HotCopies, tmp_path: Path) -> None:
        hot.put("a", b"1")
        assert open_hot_copies("other", 9, 0.0, 10_000, [tmp_path]) is not None
        assert hot.find("a") is not None
        newer = open_hot_copies("flow", 2, 0.0, 10_000, [tmp_path])
        assert newer is not None
        assert not hot.folder.exists()
        hot.put("b", b"1")
        assert hot.find("b") is None

    def test_what_a_flow_left_a_day_ago_is_swept(self, hot: HotCopies, tmp_path: Path) -> None:
        hot.put("a", b"1")
        later = hot.folder.stat().st_mtime + 100_000
        assert open_hot_copies("other", 1, later, 10_000, [tmp_path]) is not None
        assert not hot.folder.exists()

    def test_what_an_executor_writes_is_at_hand_for_others_that_share_the_folder(
        self, far: Store, hot: HotCopies, tmp_path: Path
    ) -> None:
        ref = run_files(far, hot=hot).write(windowed(ROWS))
        far.delete([ref.file])
        other = open_hot_copies("flow", 1, 0.0, 10_000, [tmp_path])
        assert other == hot
        assert_frame_equal(run_files(far, hot=other).read(ref), windowed(ROWS))

    def test_whoever_shares_the_folder_finds_copies_whole_or_not_at_all(self, hot: HotCopies, tmp_path: Path) -> None:
        content = bytes(range(256)) * 12

        def work(seed: int) -> set[bytes]:
            own = open_hot_copies("flow", 1, 0.0, 10_000, [tmp_path])
            assert own is not None
            seen = set()
            for number in range(60):
                # Five files where there is room for three: what one needs is taken away by another.
                name = f"run-{(seed + number) % 5}"
                own.put(name, content)
                found = own.find(name)
                with contextlib.suppress(FileNotFoundError):
                    seen |= {found.read_bytes()} if found is not None else set()
            return seen

        with ThreadPoolExecutor(8) as workers:
            assert set().union(*workers.map(work, range(8))) == {content}

    def test_a_folder_that_another_host_is_sweeping_is_used_all_the_same(
        self, hot: HotCopies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hot.put("a", b"1")
        listed = Path.rglob

        def vanish(folder: Path, pattern: str) -> list[Path]:
            found = list(listed(folder, pattern))
            for path in found:
                path.unlink() if path.is_file() else None
            return found

        monkeypatch.setattr(Path, "rglob", vanish)
        assert open_hot_copies("other", 1, 1e12, 10_000, [tmp_path]) is not None
        assert hot.folder.exists()

    def test_folders_are_private(self, hot: HotCopies) -> None:
        assert hot.folder.stat().st_mode & 0o777 == 0o700
        assert hot.folder.parent.parent.stat().st_mode & 0o777 == 0o700

    def test_a_folder_that_others_may_enter_is_not_used(self, hot: HotCopies, tmp_path: Path) -> None:
        hot.folder.parent.parent.chmod(0o777)
        assert open_hot_copies("flow", 1, 0.0, 10_000, [tmp_path]) is None

    def test_a_link_in_the_place_of_the_folder_is_not_followed(self, tmp_path: Path, hot: HotCopies) -> None:
        home = hot.folder.parent.parent
        home.rename(tmp_path / "elsewhere")
        home.symlink_to(tmp_path / "elsewhere")
        assert open_hot_copies("flow", 1, 0.0, 10_000, [tmp_path]) is None

    def test_without_room_there_are_no_copies(self, tmp_path: Path) -> None:
        assert open_hot_copies("flow", 1, 0.0, 2**60, [tmp_path, tmp_path / "missing"]) is None
