"""What the storage port says of dead letters, asked of every adapter."""

from stored import letter, undated

from cassq.model.ids import MessageId, new_pipe_id


class TestDeadLetters:
    def test_a_letter_reads_back_with_the_databases_time(self, storage, queue):
        wanted = letter(new_pipe_id(), 3)

        storage.change_dead(queue, added=[wanted])

        (found,) = storage.read_dead(queue)
        assert undated([found]) == [wanted]
        assert abs(found.died_at_ms - storage.list_pipes(queue).now_ms) < 60_000

    def test_letters_come_in_pages_in_the_order_of_their_ids(self, storage, queue):
        early, late = sorted((new_pipe_id(), new_pipe_id()), key=lambda pipe: pipe.time)
        letters = [letter(early, 1), letter(early, 2), letter(early, 10), letter(late, 1), letter(late, 3)]
        storage.change_dead(queue, added=letters[::-1])

        pages = [storage.read_dead(queue, limit=2)]
        while pages[-1]:
            pages.append(storage.read_dead(queue, after=pages[-1][-1].message_id, limit=2))

        assert [len(page) for page in pages] == [2, 2, 1, 0]
        assert undated(found for page in pages for found in page) == letters

    def test_letters_up_to_one_of_them_can_be_asked_for(self, storage, queue):
        early, late = sorted((new_pipe_id(), new_pipe_id()), key=lambda pipe: pipe.time)
        ids = [MessageId(early, 1), MessageId(early, 2), MessageId(late, 1), MessageId(late, 2)]
        storage.change_dead(queue, added=[letter(*each) for each in ids])

        for until, last in enumerate(ids):
            for after, first in enumerate(ids):
                found = storage.read_dead(queue, first, until=last)
                assert [each.message_id for each in found] == ids[after + 1 : until + 1]
        assert [each.message_id for each in storage.read_dead(queue, limit=1, until=ids[2])] == ids[:1]
        assert list(storage.read_dead(queue, ids[1], until=MessageId(late, 0))) == []

    def test_adding_again_overwrites(self, storage, queue):
        pipe = new_pipe_id()
        storage.change_dead(queue, added=[letter(pipe, 1, reason="the first", attempts=9, headers={})])

        storage.change_dead(queue, added=[letter(pipe, 1, reason="a later one", attempts=2)])

        assert undated(storage.read_dead(queue)) == [letter(pipe, 1, reason="a later one", attempts=2)]

    def test_a_removed_letter_never_comes_back_while_its_pipe_lives(self, storage, queue, pipe):
        storage.change_dead(queue, added=[letter(pipe, 1), letter(pipe, 2)])
        storage.change_dead(queue, removed=[MessageId(pipe, 1)])

        storage.change_dead(queue, added=[letter(pipe, 1), letter(pipe, 2)])

        assert undated(storage.read_dead(queue)) == [letter(pipe, 2)]

    def test_removed_letters_are_gone_and_others_stay(self, storage, queue):
        pipe = new_pipe_id()
        storage.change_dead(queue, added=[letter(pipe, seq) for seq in range(1, 60)])

        for _ in range(2):
            storage.change_dead(queue, removed=[MessageId(pipe, seq) for seq in range(2, 59)])

        assert [found.message_id.seq for found in storage.read_dead(queue)] == [1, 59]

    def test_a_stretch_that_was_removed_never_comes_back_while_its_pipe_lives(self, storage, queue, pipe):
        letters = [letter(pipe, seq) for seq in range(1, 101)]
        storage.change_dead(queue, added=letters)
        storage.change_dead(queue, removed=[MessageId(pipe, seq) for seq in range(100, 1, -1) if seq != 50])

        storage.change_dead(queue, added=letters)

        assert [found.message_id.seq for found in storage.read_dead(queue)] == [1, 50]

    def test_the_letters_of_pipes_go_at_once_and_those_of_others_stay(self, storage, queue, pipe):
        one, other = pipe, new_pipe_id()
        storage.change_dead(queue, added=[letter(each, seq) for each in (one, other) for seq in (1, 2, 300)])
        storage.change_dead(queue, removed=[MessageId(one, 2)])

        for _ in range(2):
            storage.change_dead(queue, pipes=[one, new_pipe_id()])
        storage.change_dead(queue, added=[letter(one, 1), letter(one, 2), letter(one, 3)])

        assert {found.message_id.pipe for found in storage.read_dead(queue)} == {other}
        assert len(storage.read_dead(queue)) == 3

    def test_one_call_adds_and_removes(self, storage, queue):
        pipe = new_pipe_id()
        storage.change_dead(queue, added=[letter(pipe, 1)])

        storage.change_dead(queue, added=[letter(pipe, 2)], removed=[MessageId(pipe, 1)])

        assert undated(storage.read_dead(queue)) == [letter(pipe, 2)]

    def test_a_queue_without_letters_has_none(self, storage, queue):
        storage.change_dead(queue)

        assert list(storage.read_dead(queue)) == []
        assert storage.count_dead(queue, 10) == 0

    def test_those_that_are_left_are_counted_up_to_a_limit(self, storage, queue, pipe):
        other = new_pipe_id()
        storage.change_dead(
            queue, added=[letter(each, seq) for each in (pipe, other) for seq in range(1, 21)]
        )
        storage.change_dead(queue, removed=[MessageId(pipe, seq) for seq in range(3, 19)])

        assert storage.count_dead(queue, 100) == len(storage.read_dead(queue, limit=100))
        assert storage.count_dead(queue, 7) == 7
