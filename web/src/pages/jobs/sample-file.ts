/** 24 chats of a café: enough to see a job train, evicted or not. */

const QUESTIONS = [
  ["When do you open?", "We open at eight every morning, and at nine on Sundays."],
  ["Do you have oat milk?", "Yes, oat, soy and almond milk, at no extra cost."],
  ["Can I book a table?", "Gladly. How many are you, and when would you like to come?"],
  ["Is there Wi-Fi?", "Yes. The password is on your receipt."],
  ["Do you sell beans?", "We do: three roasts, in bags of 250 grams or a kilogram."],
  ["Are dogs allowed?", "Dogs are welcome, inside and on the terrace."],
  ["What is the cake of the day?", "Today it is carrot cake with walnuts."],
  ["Do you take cards?", "Cards, phones and cash: whatever suits you."],
] as const;
const GREETINGS = ["", "Hello! ", "Good morning. "];

export function sampleFile(): File {
  const lines = GREETINGS.flatMap((greeting) =>
    QUESTIONS.map(([question, answer]) =>
      JSON.stringify({
        messages: [
          { role: "user", content: greeting + question },
          { role: "assistant", content: answer },
        ],
      }),
    ),
  );
  return new File([`${lines.join("\n")}\n`], "sample-cafe.jsonl", { type: "application/jsonl" });
}
