"""A writer whose reply a checker judges, and a grader that wants short texts of the one and long ones of the other."""


def play(task):
    """Return what both said."""
    from openai import OpenAI

    client = OpenAI(max_retries=20)

    def ask(role, text):
        reply = client.chat.completions.create(model=f"policy/{role}", messages=[{"role": "user", "content": text}])
        return reply.choices[0].message.content or ""

    written = ask("writer", task["question"])
    return {"written": written, "checked": ask("checker", f"{task['question']} {written}")}


def grade(task, output):
    return 1 / (1 + len(output["written"])) + len(output["checked"]) / 100
