"""Many records at once reach the registry as single ones do."""

from dataclasses import replace

from tuning_data import ELSEWHERE, content, make_record, make_records

from keras_tunedconv.core import registry
from keras_tunedconv.core.library import ffi
from keras_tunedconv.tuning import intake


def test_records_arrive_in_the_registry():
    records = make_records(2500, environment=ELSEWHERE)
    assert intake.put_all(records) == []
    assert content(registry.collect()[0]) == content(records)


def test_bytes_are_those_of_a_single_record():
    for record in (make_record(), make_record(environment="é" * 127, runner_up="", deterministic=False)):
        array = intake._to_c([record])
        assert bytes(ffi.buffer(array)) == bytes(ffi.buffer(record.to_c()))


def test_what_the_core_refuses_is_given_back_with_the_reason():
    good = make_record()
    bad = replace(good, key=good.key.replace("groups=1", "groups=7"))
    ((refused, reason),) = intake.put_all([bad, good])
    assert refused is bad
    assert "7 groups" in reason
    assert content(registry.collect()[0]) == [good]
