"""What flows show in this process, they show on Spark: some tests of every capability once more, on a session.

Each is a test of ``tests/flows``; here the fixture ``bench`` runs its flows on Spark.
"""

# ruff: noqa: F401 - what is imported here is run here

from __future__ import annotations

from flows.test_ahead import test_restarts_and_new_partitions_do_not_change_the_answers
from flows.test_alignment import test_whoever_is_ahead_waits_and_reads_on_when_the_other_is_near_or_at_its_end
from flows.test_bad_input import (
    test_a_file_that_vanishes_before_it_is_read_stops_the_flow_and_nothing_is_lost,
    test_a_task_that_fails_once_is_run_again_and_nothing_counts_twice,
    test_malformed_rows_and_null_keys_and_times_go_to_the_dead_letter_sink,
    test_quarantined_files_are_told_of_and_all_others_are_counted,
)
from flows.test_checkpoints import (
    small_disk,
    test_a_damaged_state_file_is_found_and_the_way_back_is_named,
    test_a_full_disk_stops_the_flow_with_the_last_commit_intact,
    test_a_lost_spark_checkpoint_is_made_good_from_the_split_log,
    test_a_lost_split_log_is_noticed,
)
from flows.test_endpoints import (
    folders,
    test_a_missing_entry_of_the_split_log_stops_the_flow_and_going_back_repairs_it,
    test_a_source_is_added_and_one_is_dropped,
)
from flows.test_exchanges import (
    test_a_batch_that_is_published_again_is_merged_once,
    test_auto_merges_only_while_it_is_worth_it_and_answers_the_same_through_switches_and_restarts,
    test_slots_hold_rows_back_for_the_next_operator_and_it_answers_the_same,
)
from flows.test_failing_flows import (
    test_a_failed_cast_names_cause_column_and_value_first_and_is_tried_once,
    test_a_failing_flow_prints_nothing_of_sparks,
    test_a_processor_shows_its_line_its_key_and_the_row,
    test_a_step_behind_an_exchange_is_named_too_and_tried_once,
    test_what_the_host_may_be_to_blame_for_is_tried_again_and_ends_with_its_reason,
)
from flows.test_joins import test_results_of_windows_are_joined
from flows.test_kafka import test_a_topic_is_read_to_its_end_and_on_after_a_restart, topic
from flows.test_lookups import test_results_of_windows_are_looked_up_too
from flows.test_moves import (
    test_a_restart_after_every_batch_while_keys_move_does_not_change_the_answers,
    test_split_keys_keep_their_own_time_over_restarts,
    test_the_number_of_slots_changes_at_a_restart_both_ways,
)
from flows.test_named_strategies import test_every_named_strategy_routes_the_very_first_row
from flows.test_operators import test_branches_without_windows_answer_as_the_oracle_in_one_flow
from flows.test_processing import test_an_added_field_starts_with_its_default_and_other_changes_are_refused
from flows.test_transparency import answers, test_a_restart_after_every_batch_does_not_change_the_answers
