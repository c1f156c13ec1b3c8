"""Trains and loads the unigram tokenizers of the models in assets/."""
import os

import sentencepiece


def train(path, captions, most_pieces):
    """Trains a unigram SentencePiece model on the captions' words and on all of printable ASCII."""
    words = sorted({w.strip('.,:') for line in captions for w in line.split()})
    # SentencePiece makes a whole word one piece only if different characters follow the word in the corpus.
    extra = [' '.join(w + end for end in ('', ',', '.', '!', '?', ';', ':')) for w in words] * 20
    corpus = path + '.txt'
    with open(corpus, 'w') as f:
        f.write('\n'.join(captions + extra))
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=path.removesuffix('.model'), model_type='unigram', vocab_size=most_pieces, hard_vocab_limit=False,
        character_coverage=1.0, required_chars=''.join(map(chr, range(33, 127))), normalization_rule_name='nmt_nfkc_cf',
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, num_threads=1)
    os.remove(corpus)
    os.remove(path.removesuffix('.model') + '.vocab')


def load(path):
    return sentencepiece.SentencePieceProcessor(model_file=path)
