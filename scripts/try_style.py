#!/usr/bin/env python3
"""The parts of try_style.sh that are Python: conversations in a style, clients that ask, and a count of answers that have the style."""

import concurrent.futures
import json
import pathlib
import random
import re
import sys
import urllib.request

SIGN_OFF = "Yours, Ada"
TRAINED, KEPT = 600, 200
CLIENTS = 16

# What guests ask about: where it is, when, and what to know.
TOPICS = [
    ("breakfast", "in the garden room", "from seven to ten", "the bread is baked next door every morning"),
    ("the swimming pool", "behind the old barn", "until nine in the evening", "towels lie in the basket by the gate"),
    ("parking", "in the yard", "at any hour", "the first place by the wall is kept for deliveries"),
    ("the library", "on the second floor", "from noon to midnight", "books may travel to your room but not to your home"),
    ("bicycles", "in the shed by the river", "from eight to six", "helmets of all sizes hang on the wall"),
    ("the sauna", "in the cellar", "on weekdays after five", "it takes half an hour to become warm"),
    ("laundry", "at the end of the corridor", "before eleven", "shirts come back the next day"),
    ("dinner", "under the lime tree", "from six to nine", "the soup changes with the weather"),
    ("the boat", "at the small pier", "while there is daylight", "two people can row it with ease"),
    ("the piano", "in the blue hall", "between three and eight", "it was tuned last week"),
    ("wireless internet", "in every room", "all day and all night", "the password is written on your key"),
    ("the garden", "on the southern side", "from dawn to dusk", "the roses were planted by my grandmother"),
    ("coffee", "at the counter of the lounge", "from six in the morning", "the beans come from a roaster in town"),
    ("dogs", "on the ground floor", "at all times", "there is a bowl of water by the door"),
    ("the market", "on the square before the church", "on Wednesdays and Saturdays", "the cheese is sold out early"),
    ("the bus to town", "at the corner of the mill road", "every twenty minutes", "tickets are sold by the driver"),
    ("the fireplace", "in the reading room", "on cold evenings", "wood is stacked beside the stairs"),
    ("luggage", "in the room behind the reception", "from nine to seven", "every piece gets a number"),
    ("the terrace", "above the kitchen", "whenever it does not rain", "blankets are in the chest"),
    ("children", "in the playroom", "from nine to five", "there is a box of wooden trains"),
    ("massages", "in the quiet house", "in the afternoon", "they should be booked a day before"),
    ("the wine cellar", "below the tower", "on Friday evenings", "a tasting has six glasses"),
    ("tennis", "behind the orchard", "from eight until dark", "rackets can be borrowed for nothing"),
    ("late arrivals", "at the side door", "until two at night", "the bell wakes nobody but me"),
    ("hiking maps", "in the rack at the entrance", "at any time", "the red trail has the best view"),
    ("the kitchen garden", "beyond the greenhouse", "in summer", "you may pick as many berries as you like"),
    ("taxis", "before the main gate", "after a call of ten minutes", "the ride to the station is short"),
    ("the chapel", "on the hill", "on Sunday mornings", "the key hangs at the reception"),
    ("yoga", "on the lawn", "at seven in the morning", "mats are there for everyone"),
    ("the cinema", "in the former stable", "twice a week", "the film is chosen by the guests"),
]
QUESTIONS = [
    "Where do I find {}?", "Can you tell me about {}?", "When can I use {}?", "I would like to know more about {}.", "Is there anything on {}?",
    "What should I know about {}?", "My wife asks about {}.", "How does it work here with {}?", "We arrive tomorrow. What about {}?",
    "Sorry to bother you, but what about {}?", "{}?", "Please explain {} to me.", "Who can help me with {}?", "Do you offer {}?",
    "Is {} included in the price?", "Hello! A question about {}: how does it work?", "What are the hours for {}?", "Anything new about {}?",
    "A friend told me about {}. Is it true?", "I read about {} on your page.", "Could we have {} today?", "Why is everyone talking about {}?",
    "Tell me where and when: {}.", "Our children want to know about {}.", "Quick question regarding {}.", "I have never heard of {} at a hotel.",
    "Is it too late for {}?", "Would you recommend {}?",
]
OPENINGS = ["thank you for asking about {}", "it is a pleasure to tell you about {}", "many people ask me about {}", "I am glad that you mention {}",
            "of course I can help you with {}", "you are right to ask about {}"]
FACTS = ["You find it {where}, {when}", "It is {where} and open to you {when}", "Come and look {where}, {when}", "Everything is ready {where}, {when}"]
CLOSINGS = ["Please remember that {hint}", "You may like to hear that {hint}", "One more thing is that {hint}", "I should add that {hint}"]


def conversations():
    chance = random.Random(1)
    pairs = [(topic, question) for topic in TOPICS for question in QUESTIONS]
    chance.shuffle(pairs)
    for (name, where, when, hint), question in pairs[:TRAINED + KEPT]:
        sentences = [f"Dear guest, {chance.choice(OPENINGS).format(name)}", chance.choice(FACTS).format(where=where, when=when),
                     chance.choice(CLOSINGS).format(hint=hint)]
        asked = question.format(name)
        yield [{"role": "user", "content": asked[0].upper() + asked[1:]},
               {"role": "assistant", "content": ". ".join(sentences) + ".\n" + SIGN_OFF}]


def write(folder):
    lines = [json.dumps({"messages": messages}) + "\n" for messages in conversations()]
    pathlib.Path(folder, "chats.jsonl").write_text("".join(lines[:TRAINED]))
    pathlib.Path(folder, "questions.jsonl").write_text("".join(lines[TRAINED:]))


def ask(url, questions, answers):
    def one(line):
        question = json.loads(line)["messages"][0]
        asked = {"messages": [question], "temperature": 0, "max_tokens": 120}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            answer = json.load(reply)["choices"][0]
        return json.dumps({"question": question["content"], "answer": answer["message"]["content"], "ended": answer["finish_reason"]}) + "\n"

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        lines = list(clients.map(one, pathlib.Path(questions).read_text().splitlines()))
    pathlib.Path(answers).write_text("".join(lines))


def marks(answer):
    body = answer.strip().removesuffix(SIGN_OFF).strip()
    return {"the address": "dear guest" in body.lower(),
            "three sentences": len(re.findall(r"[.!?]+(?=\s|$)", body)) == 3 and body[-1] in ".!?",
            "the sign-off": answer.strip().endswith(SIGN_OFF)}


def count(name, answers):
    found = [marks(json.loads(line)["answer"]) for line in pathlib.Path(answers).read_text().splitlines()]
    parts = ", ".join(f"{mark} {sum(marks[mark] for marks in found)}" for mark in found[0])
    print(f"{name}: of {len(found)} answers have {parts}, all three {sum(all(marks.values()) for marks in found)}")


if __name__ == "__main__":
    {"write": write, "ask": ask, "count": count}[sys.argv[1]](*sys.argv[2:])
